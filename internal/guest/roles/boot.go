// Package roles connects the packages of the guest for each role of cmd/entrypoint.
package roles

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/hardening"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// paths are the paths in the box that are not part of the contract.
type paths struct {
	out    string // copied out of the box
	state  string // partial result; root only
	git    string // root's repositories; the agent may read them
	proof  string // files for the checkouts of a proof, readable by the code of both commits; on the file system of git
	ssh    string // SSH key; memory-backed, root only
	layers string // mounts of the files that setup left; root only
}

func boxPaths() paths {
	return paths{
		out: workorder.OutDir, state: "/var/lib/sandbox-agent/state",
		git: "/var/lib/sandbox-agent/git", proof: "/var/lib/sandbox-agent/proof", ssh: "/dev/shm/sandbox-agent-ssh",
		layers: "/run/sandbox-agent-setup",
	}
}

// Boot reads the envelope from standard input, runs the attempt and returns the exit code of the container.
func Boot(ctx context.Context, log *slog.Logger) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, initd.LongStop)
	initd.Listen()
	proc.PrestartThreads(threads)
	missing := hardening.TakeFailure()
	in := workorder.NewInput(os.Stdin)
	standby, env, err := in.Next()
	if err == nil && standby == nil && env.Order.Mode == workorder.ModeStandalone && madeReady() {
		if ferr := forget(boxPaths()); ferr != nil {
			log.Warn("start a new record", "error", ferr)
		}
		err = restorePolicy(&env.Order)
	}
	rec, rerr := openRecord(os.Stdout, standby != nil)
	if rerr != nil {
		log.Error("boot", "error", rerr)
		return workorder.ExitBox
	}
	var p *parts
	if standby != nil && err == nil {
		if p, err = standBy(ctx, log, standby, rec, in, signals); err != nil {
			rec.Emit(workorder.Event{Type: workorder.EventStandby, Status: string(workorder.StepFailed), Text: err.Error()})
			log.Error("standby", "error", err)
			rec.Flush()
			return workorder.ExitBox
		}
		env = p.env
		rec.Begin()
	}
	if err != nil {
		return refuse(log, rec, err)
	}
	mask := secrets(env)
	rec.SetMask(mask)
	describe(rec, &env.Order)
	rec.Emit(workorder.Event{Type: workorder.EventReady, Text: version.Get().Version})
	if missing != "" {
		rec.Warn("the sandbox is less isolated than it should be: " + missing)
	}
	if short := mask.Ignored(); len(short) > 0 {
		rec.Warn(
			fmt.Sprintf("too short to be redacted from logs and events (fewer than %d characters): %s", redact.MinValue, strings.Join(short, ", ")),
		)
	}
	var b *boot.Runner
	if p != nil {
		b, err = p.runner(mask)
	} else {
		b, err = newRunner(log, env, rec, mask)
	}
	if err != nil {
		return refuse(log, rec, err)
	}
	b.Signals = signals
	return b.Run(ctx)
}

// Number of threads started before the agent, which can use up the limit of the box.
const threads = 32

// Plan prints the steps for the order on standard input.
func Plan(log *slog.Logger) int {
	env, err := workorder.DecodeEnvelope(os.Stdin)
	if err != nil {
		log.Error("print plan", "error", err)
		return workorder.ExitInvalid
	}
	b, err := newRunner(log, env, nil, nil)
	if err != nil {
		log.Error("print plan", "error", err)
		return workorder.ExitBox
	}
	fmt.Print(b.Plan())
	return workorder.ExitOK
}

func openRecord(stream io.Writer, waiting bool) (*record.Recorder, error) {
	p := boxPaths()
	if err := os.MkdirAll(p.state, 0o700); err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return record.New(record.Options{OutDir: p.out, StateDir: p.state, Stream: stream, Waiting: waiting})
}

// describe copies the order's details into the result, so that every ending has them.
func describe(rec *record.Recorder, o *workorder.Order) {
	rec.Update(func(r *workorder.Result) {
		r.TaskID, r.Project, r.Mode, r.Repo, r.BaseBranch = o.TaskID, o.Project, o.Mode, o.Repo, o.Branch
		r.AttemptID = o.AttemptID
		r.Agent.Harness, r.Agent.Model = o.Harness.Name, o.Harness.Model
		var u unix.Utsname
		if unix.Uname(&u) == nil {
			r.Platform.Kernel = unix.ByteSliceToString(u.Release[:])
		}
	})
}

// refuse ends a run whose order cannot be executed.
func refuse(log *slog.Logger, rec *record.Recorder, err error) int {
	log.Error("boot", "error", err)
	if werr := rec.Finish(func(r *workorder.Result) {
		r.End(workorder.Ending{
			Status: workorder.StatusError, EndedBy: workorder.EndedByOrder, Reasons: workorder.Because(workorder.ReasonOrder, "%v", err),
		})
	}); werr != nil {
		log.Error("write result", "error", werr)
	}
	return workorder.ExitCode(workorder.StatusError, workorder.EndedByOrder)
}

// secrets returns all values that must be redacted from text that leaves the box.
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
	for name, g := range env.RepoGit {
		values["git-token of "+name], values["ssh-key of "+name] = g.Token, g.SSHKey
	}
	return redact.Named(values)
}
