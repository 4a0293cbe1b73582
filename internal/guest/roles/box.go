package roles

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/hardening"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/netpolicy"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/prover"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/setupcache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/taskrunner"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/usershell"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// parts are the parts of a run, in order of creation.
type parts struct {
	log   *slog.Logger
	env   *workorder.Envelope
	order *workorder.Order
	paths paths
	rec   *record.Recorder // nil if only the plan is requested
	mask  atomic.Pointer[redact.Set]
	emit  func(workorder.Event)
	warn  func(string)

	booted bool        // before its order
	begun  atomic.Bool // the order has arrived, and task is set
	lost   chan string // of a service, before

	groups *cgroups.Groups
	user   *proc.Credential // the agent's
	space  *rootgit.Workspace
	models *gateway.Models
	audit  io.Closer
	task   *taskrunner.Task
	policy *egress.Egress
	hosts  *netpolicy.TrustedHosts
	engine *innerengine.Engine
	repo   *rootgit.Repositories
	stack  *innerengine.Services
	kept   *setupcache.Task // nil if files of setup are not cached
}

// newRunner connects the parts. rec and mask are nil if only the plan is requested.
func newRunner(log *slog.Logger, env *workorder.Envelope, rec *record.Recorder, mask *redact.Set) (*boot.Runner, error) {
	p := newParts(log, env, rec)
	if err := p.addBox(workorder.TrustedHosts(p.order)); err != nil {
		return nil, err
	}
	return p.runner(mask)
}

func newParts(log *slog.Logger, env *workorder.Envelope, rec *record.Recorder) *parts {
	p := &parts{
		log: log, env: env, order: &env.Order, paths: boxPaths(), rec: rec, emit: func(workorder.Event) {}, warn: func(string) {},
		lost: make(chan string, 1),
	}
	if rec != nil {
		p.emit, p.warn = rec.Emit, rec.Warn
	}
	return p
}

// addBox adds the parts that a standby has, too.
func (p *parts) addBox(trusted []string) error {
	p.hosts = netpolicy.NewTrustedHosts(trusted)
	for _, add := range []func() error{p.addUser, p.addEngine} {
		if err := add(); err != nil {
			return err
		}
	}
	p.addServices()
	return nil
}

// addUser prepares the user that runs the task's code.
func (p *parts) addUser() (err error) {
	if p.groups, err = cgroups.Open(); err != nil {
		return err
	}
	if p.user, err = sandboxUser(p.groups.Of(cgroups.Agent)); err != nil {
		return err
	}
	if p.rec != nil {
		// With access to the path of an image's layer, the agent could change the images of services and of a proof.
		if p.user.Namespace, err = proc.NewNamespace(
			proc.OwnMounts, func() error { return proc.Hide(workorder.DataRoot, workorder.CacheDir) },
		); err != nil {
			return fmt.Errorf("hide the inner engine's data from the agent: %w", err)
		}
	}
	p.space = &rootgit.Workspace{
		Dir: workorder.Workspace, User: p.user, Home: workorder.SandboxHome,
		GitConfig: "/etc/gitconfig",
	}
	return nil
}

// addTask prepares the agent and its access to a model.
func (p *parts) addTask() (err error) {
	logs := ""
	if p.rec != nil {
		logs = p.logs()
	}
	if p.models, p.audit, err = netpolicy.NewModels(p.log, p.env, logs, p.emit); err != nil {
		return err
	}
	p.task = taskrunner.New(p.env, p.models, runner.Config{
		Order: p.order, Workspace: p.space.Dir, Home: p.space.Home, OutDir: p.paths.out, User: p.user, OOMKills: p.groups.OOMKills, Emit: p.emit,
		Redact: p.mask.Load(),
	})
	if p.order.Mode == workorder.ModeStandalone {
		return nil
	}
	if err := p.task.Check(); err != nil {
		return err
	}
	if p.rec != nil {
		if door, err := usershell.New(usershell.Dir); err != nil {
			p.warn(err.Error())
		} else {
			p.task.SetShellEntry(door)
		}
	}
	if p.order.Mode == workorder.ModePlan && p.rec != nil {
		return p.task.MakePlanDir()
	}
	return nil
}

// addEngine prepares the inner engine and the network policy, which identify each other's connections.
func (p *parts) addEngine() (err error) {
	who := connowner.New(
		func(ctx context.Context, id string) string { return p.engine.ContainerName(ctx, id) },
		func(ctx context.Context, ip netip.Addr) string { return p.engine.ContainerByIP(ctx, ip) },
	)
	if p.policy, err = egress.New(
		egress.Config{Policy: p.order.Network, EngineGID: innerengine.Group, Origin: who, Emit: p.emit, Log: p.log},
	); err != nil {
		return err
	}
	p.engine, err = innerengine.New(p.log, p.order, innerengine.Config{
		User: p.user, Warn: p.warn, Emit: p.emit, Groups: p.groups, Mask: p.mask.Load, Logs: p.logs(), Egress: p.policy, Origin: who,
		Avoid: p.hosts.Prefixes,
	})
	return err
}

// addRepository prepares root's git, in a control group that the agent cannot starve.
func (p *parts) addRepository() {
	user := *p.user
	user.Cgroup = p.groups.Of(cgroups.Git)
	p.repo = openRepository(p.log, p.env, p.space, &user, func(e workorder.Event) {
		if e.Type == workorder.EventWarning {
			p.warn(e.Text) // also in the result
			return
		}
		p.emit(e)
	}, p.mask.Load().String)
	p.repo.Each(func(r *rootgit.Repository) { r.Pusher.Usage = func() workorder.Usage { return p.rec.Result().Usage } })
	p.task.SetChangeSource(p.repo.Changed)
}

// rooms returns the factory of a proof's rooms.
func (p *parts) rooms() *prover.Rooms {
	return &prover.Rooms{
		Groups: p.groups, User: p.user, Engine: p.engine, Services: p.stack, Hidden: []string{p.paths.out, p.paths.git, p.paths.layers},
		Snapshots: p.kept,
	}
}

// addSnapshots lets the task start from the files that setup left in an earlier box.
func (p *parts) addSnapshots() {
	o := p.order
	// The files of further repositories are in the way: setup may change them as well.
	if p.rec == nil || o.Repo == "" || len(o.Repos) > 0 || o.Mode == workorder.ModeStandalone || len(o.Setup)+len(o.Validate) == 0 {
		return
	}
	c := setupcache.Config{
		MountDir: p.paths.layers, ID: o.TaskID + "-" + o.AttemptID, User: p.user, Log: p.log, Binding: p.engine.Binding,
		Dirs: []setupcache.Dir{
			// The repository stays in the box's own file system: unpushed parts of it are copied out of a stopped box.
			{Name: "tree", Path: workorder.Workspace, Whole: true, Apart: []string{".git"}, Own: []string{rootgit.EnvFile}},
			{Name: "home", Path: workorder.SandboxHome},
			{Name: "browsers", Path: "/opt/playwright/browsers"}, // a project installs the browsers of its own version there
			{Name: "tmp", Path: "/tmp", Scratch: true},
			{Name: "var-tmp", Path: "/var/tmp", Scratch: true},
		},
	}
	if len(o.SecretNames) > 0 {
		c.Secret, c.Unseen = p.mask.Load().In, p.mask.Load().Ignored()
	}
	if err := setupcache.Reserve(workorder.CacheDir, c.MountDir); err != nil {
		p.log.Warn("results of earlier sandboxes are not reused", "error", err)
	}
	c.Beside = func(ctx context.Context) (map[string]string, error) { return p.rooms().Beside(ctx, p.paths.state) }
	p.kept = &setupcache.Task{Store: setupcache.New(c), Order: o, Say: func(text string) {
		p.emit(workorder.Event{Type: workorder.EventOutput, Name: string(workorder.StepSetup), Text: text})
	}}
	p.repo.Checkpoints.Lay = p.kept.Mount
}

func (p *parts) addServices() {
	p.stack = &innerengine.Services{
		Engine: p.engine, Egress: p.policy, Order: p.order, Workspace: p.space.Dir, Home: p.space.Home, User: p.user,
		Env: func() []string { return p.task.Environ() },
		Lost: func(text string) {
			p.warn(text)
			if p.begun.Load() {
				p.task.AddFailedService(text)
				return
			}
			select {
			case p.lost <- text:
			default:
			}
		},
		Emit: p.emit, Clean: p.cleaner, Log: p.log, Logs: p.logs(), Again: p.order.Mode == workorder.ModeStandalone && madeReady(),
	}
}

// runner adds the parts of the order, and returns the run. Parts that the order does not need are nil.
func (p *parts) runner(mask *redact.Set) (*boot.Runner, error) {
	o := p.order
	p.mask.Store(mask)
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	if err := taskrunner.ExpandEnv(o); err != nil {
		return nil, err
	}
	if err := p.addTask(); err != nil {
		return nil, err
	}
	p.begun.Store(true)
	p.addRepository()
	p.addSnapshots()
	b := &boot.Runner{
		Order: o, Rec: p.rec, Log: p.log, Space: p.space, Packages: packages{p.logFile("packages.log")}, Tools: p.tools(), Task: p.task,
		Engine: p.engine, Services: p.stack, Repo: p.repo,
		Network: p.enforcer(), Booted: p.booted,
	}
	if p.kept != nil {
		b.SetupCache = p.kept
	}
	pull := &taskrunner.Forge{Order: o, Token: p.env.ForgeToken, App: p.env.App, Log: p.log}
	if o.PR != nil && o.Mode != workorder.ModePlan {
		b.Forge = pull
	}
	if prover.Wanted(o) {
		b.Prover = &prover.Prover{
			Config: func() runner.Config { return p.task.ConfigFor(workorder.SecretForValidate) }, Repo: p.repo.Repository,
			Containers: p.engine.Containers, State: p.paths.state, Dir: p.paths.proof, Rooms: p.rooms(),
		}
	}
	if o.MayContinue() {
		b.Answers = &taskrunner.Answerer{Forge: pull, Task: p.task, Repo: p.repo.Repository}
	}
	if o.Mode == workorder.ModeRebase {
		b.Rebaser = &taskrunner.Rebaser{Repo: p.repo.Repository, Task: p.task, Forge: pull, Mask: p.mask.Load()}
	}
	if o.Mode == workorder.ModeStandalone {
		b.Standalone = &standaloneServer{p, madeReady()}
	}
	if most := o.Limits.DiskBytes; most > 0 {
		b.WatchDisk = func(ctx context.Context, over func(string)) {
			watchDisk(ctx, []string{"/", workorder.DataRoot, setupcache.OwnDir(p.paths.layers)}, most, over)
		}
	}
	return b, nil
}

func (p *parts) enforcer() *netpolicy.Enforcer {
	return &netpolicy.Enforcer{
		Policy: p.policy, Hosts: p.hosts, Order: p.order, Task: p.task, Models: p.models, Audit: p.audit, Guard: p.engine.Guard, Log: p.log,
		InForce: p.booted,
	}
}

// sandboxUser returns the user that runs the task's code, in a control group; nil means the caller's.
func sandboxUser(group *proc.Cgroup) (*proc.Credential, error) {
	return hardening.User(workorder.SandboxUser, group)
}

// openRepository opens the task's repositories for boot and rescue.
func openRepository(
	log *slog.Logger, env *workorder.Envelope, space *rootgit.Workspace, user *proc.Credential, emit func(workorder.Event),
	clean func(string) string,
) *rootgit.Repositories {
	p := boxPaths()
	before := ""
	if o := &env.Order; prover.Wanted(o) && (len(o.Validate) > 0 || o.Dev != nil) {
		before = filepath.Join(p.proof, "before.git")
	}
	return rootgit.Open(log, env, rootgit.Config{
		Out: p.out, Git: p.git, SSH: p.ssh, Before: before, Space: space, User: user, Emit: emit, Clean: clean,
		Again: env.Order.Mode == workorder.ModeStandalone && madeReady(),
	})
}
