package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/disk"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/ground"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/network"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/origin"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/proving"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/pulls"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/repository"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/task"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// paths are the places of the box that are no part of the contract.
type paths struct {
	out   string // leaves the box
	state string // partial result; root only
	git   string // our repositories; the agent may read them
	proof string // what a proof's checkouts are made of; code of both commits may read it. On the file system of git
	ssh   string // SSH key; memory-backed, root only
}

func boxPaths() paths {
	return paths{
		out: workorder.OutDir, state: "/var/lib/sandbox-agent/state",
		git: "/var/lib/sandbox-agent/git", proof: "/var/lib/sandbox-agent/proof", ssh: "/dev/shm/sandbox-agent-ssh",
	}
}

// runBoot is the trusted part of the run.
func runBoot(ctx context.Context, log *slog.Logger) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, initd.LongStop)
	initd.Listen()
	proc.KeepThreads(bootThreads)
	missing := ground.TakeMissing()
	rec, err := openRecord(os.Stdout)
	if err != nil {
		log.Error("boot", "error", err)
		return workorder.ExitBox
	}
	env, err := workorder.DecodeEnvelope(os.Stdin)
	if err != nil {
		return refuse(log, rec, err)
	}
	mask := secrets(env)
	rec.SetMask(mask)
	describe(rec, &env.Order)
	rec.Emit(workorder.Event{Type: workorder.EventReady, Text: version.Get().Version})
	if missing != "" {
		rec.Warn("the box is held less well than it should be: " + missing)
	}
	if short := mask.Ignored(); len(short) > 0 {
		rec.Warn(fmt.Sprintf("too short to be kept out of logs and events (fewer than %d characters): %s", redact.MinValue, strings.Join(short, ", ")))
	}
	b, err := newBox(log, env, rec, mask)
	if err != nil {
		return refuse(log, rec, err)
	}
	b.Signals = signals
	return b.Run(ctx)
}

func openRecord(stream io.Writer) (*record.Recorder, error) {
	p := boxPaths()
	if err := os.MkdirAll(p.state, 0o700); err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return record.New(record.Options{OutDir: p.out, StateDir: p.state, Stream: stream})
}

// describe puts what the order says into the result, so that every ending has it.
func describe(rec *record.Recorder, o *workorder.Order) {
	rec.Update(func(r *workorder.Result) {
		r.TaskID, r.Project, r.Mode, r.Repo, r.BaseBranch = o.TaskID, o.Project, o.Mode, o.Repo, o.Branch
		r.AttemptID = o.AttemptID
		r.Agent.Harness, r.Agent.Model = o.Harness.Name, o.Harness.Model
		var u unix.Utsname
		if unix.Uname(&u) == nil {
			r.Host.Kernel = unix.ByteSliceToString(u.Release[:])
		}
	})
}

// refuse ends a run whose order cannot be carried out.
func refuse(log *slog.Logger, rec *record.Recorder, err error) int {
	log.Error("boot", "error", err)
	if werr := rec.Finish(func(r *workorder.Result) {
		r.End(workorder.Ending{Status: workorder.StatusError, EndedBy: workorder.ByOrder, Reasons: workorder.Because(workorder.ReasonOrder, "%v", err)})
	}); werr != nil {
		log.Error("write result", "error", werr)
	}
	return workorder.ExitCode(workorder.StatusError, workorder.ByOrder)
}

// secrets is everything that must not leave the box in text.
func secrets(env *workorder.Envelope) *redact.Set {
	values := make(map[string]string, len(env.Secrets)+3)
	maps.Copy(values, env.Secrets)
	values["forge-token"] = env.ForgeToken
	if env.App != nil {
		values["github-app-key"] = env.App.PrivateKey
	}
	if g := env.Git; g != nil {
		values["git-token"], values["ssh-key"] = g.Token, g.SSHKey
	}
	return redact.Named(values)
}

// newBox brings the parts together. rec and mask are nil when only the plan is wanted.
func newBox(log *slog.Logger, env *workorder.Envelope, rec *record.Recorder, mask *redact.Set) (*boot.Box, error) {
	p, o := boxPaths(), &env.Order
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	groups, err := cgroups.Open()
	if err != nil {
		return nil, err
	}
	cred, err := sandboxUser(groups.Of(cgroups.Agent))
	if err != nil {
		return nil, err
	}
	if rec != nil {
		// The layers of the inner engine belong to its root, who is the agent's user here: whoever knows a path could change
		// the images that services and a proof start from.
		if cred.Place, err = proc.NewPlace(proc.OwnMounts, func() error { return proc.Hide(workorder.DataRoot, workorder.CacheDir) }); err != nil {
			return nil, fmt.Errorf("hide the inner engine's data from the agent: %w", err)
		}
	}
	space := &workspace.Workspace{
		Dir: workorder.Workspace, User: cred, Home: workorder.SandboxHome,
		GitConfig: "/etc/gitconfig", LogDir: filepath.Join(p.out, workorder.LogsDir), Clean: mask.Writer,
	}
	emit, warn := func(workorder.Event) {}, func(string) {}
	if rec != nil {
		emit, warn = rec.Emit, rec.Warn
	}
	logs := ""
	if rec != nil {
		logs = space.LogDir
	}
	models, audit, err := network.NewModels(log, env, logs, emit)
	if err != nil {
		return nil, err
	}
	t := task.New(env, models, runner.Config{
		Order: o, Workspace: space.Dir, Home: space.Home, OutDir: p.out, User: cred, OOMKills: groups.OOMKills, Emit: emit, Redact: mask,
	})
	if err := t.Check(); err != nil {
		return nil, err
	}
	var eng *innerengine.Engine
	who := origin.New(
		func(ctx context.Context, id string) string { return eng.ContainerName(ctx, id) },
		func(ctx context.Context, ip netip.Addr) string { return eng.ContainerByIP(ctx, ip) },
	)
	if o.Mode == workorder.ModePlan && rec != nil {
		if err := t.MakeDesk(); err != nil {
			return nil, err
		}
	}
	net, err := egress.New(egress.Config{Policy: o.Network, EngineGID: innerengine.Group, Origin: who, Emit: emit, Log: log})
	if err != nil {
		return nil, err
	}
	hosts := network.NewTrustedHosts(o)
	if eng, err = innerengine.New(log, o, innerengine.Config{
		User: cred, Warn: warn, Emit: emit, Groups: groups, Mask: mask, Logs: space.LogDir, Egress: net, Origin: who, Avoid: hosts.Prefixes,
	}); err != nil {
		return nil, err
	}
	gitUser := *cred
	gitUser.Cgroup = groups.Of(cgroups.Git)
	repo := openRepository(log, env, space, &gitUser, func(e workorder.Event) {
		if e.Type == workorder.EventWarning {
			warn(e.Text) // the result has it, too
			return
		}
		emit(e)
	}, mask.String)
	repo.Git.Push.Usage = func() workorder.Usage { return rec.Result().Usage }
	t.Watch(repo.Changed)
	pull := &pulls.Pulls{Order: o, Token: env.ForgeToken, App: env.App, Log: log}
	var forge boot.Forge
	if o.PR != nil && o.Mode != workorder.ModePlan {
		forge = pull
	}
	stack := &innerengine.Services{
		Engine: eng, Egress: net, Order: o, Workspace: space.Dir, Home: space.Home, User: cred,
		Env: t.Environ,
		Lost: func(text string) {
			warn(text)
			t.Lose(text)
		},
		Emit: emit, Clean: mask.Writer, Log: log, Logs: space.LogDir,
	}
	var prove boot.Prover
	if proving.Wanted(o) {
		prove = &proving.Prover{
			Config: func() runner.Config { return t.With(workorder.ForValidate) }, Repo: repo, Containers: eng.Containers, State: p.state, Dir: p.proof,
			Ground: &proving.Ground{Groups: groups, User: cred, Engine: eng, Services: stack, Hidden: []string{p.out, p.git}},
		}
	}
	var answers boot.Answerer
	if o.MayGoOn() {
		answers = &task.Answerer{Forge: pull, Task: t, Repo: repo}
	}
	var move boot.Rebaser
	if o.Mode == workorder.ModeRebase {
		move = &task.Rebaser{Repo: repo, Task: t, Forge: pull, Mask: mask}
	}
	var watchDisk func(context.Context, func(string))
	if most := o.Limits.DiskBytes; most > 0 {
		watchDisk = func(ctx context.Context, over func(string)) {
			disk.Watch(ctx, []string{"/", workorder.DataRoot}, most, over)
		}
	}
	return &boot.Box{
		WatchDisk: watchDisk,
		Prover:    prove, Forge: forge, Answers: answers, Rebaser: move,
		Order: o, Rec: rec, Log: log, Space: space, Task: t, Engine: eng,
		Network:  &network.Network{Policy: net, Hosts: hosts, Order: o, Task: t, Models: models, Audit: audit, Guard: eng.Guard, Log: log},
		Services: stack,
		Repo:     repo,
	}, nil
}

// sandboxUser is whom the task's code runs as, in a control group; nil: the caller's.
func sandboxUser(group *proc.Cgroup) (*proc.Credential, error) {
	return ground.User(workorder.SandboxUser, group)
}

// openRepository makes the task's repository for boot and rescue.
func openRepository(log *slog.Logger, env *workorder.Envelope, space *workspace.Workspace, user *proc.Credential, emit func(workorder.Event), clean func(string) string) *repository.Repository {
	p := boxPaths()
	before := ""
	if proving.Wanted(&env.Order) {
		before = filepath.Join(p.proof, "before.git")
	}
	return repository.New(log, env, repository.Config{
		Out: p.out, Git: p.git, SSH: p.ssh, Before: before, Space: space, User: user, Emit: emit, Clean: clean,
	})
}
