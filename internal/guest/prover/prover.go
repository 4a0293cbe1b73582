// Package prover implements boot's proof: it runs the project's checks on both commits of a task in clean environments.
package prover

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Prover implements boot.Prover.
type Prover struct {
	// Config returns the configuration of the runner's validate commands.
	Config     func() runner.Config
	Repo       *rootgit.Repository
	Containers *innerengine.Containers
	Rooms      *Rooms
	State      string // root only; RecordBaseline stores the image's content there
	Dir        string // directory for the checkouts of a proof
}

// Wanted reports whether the work is to be proven.
func Wanted(o *workorder.Order) bool {
	return o.Repo != "" && !o.NoProof && o.Mode != workorder.ModePlan
}

// RecordBaseline records the image's content where code of the task can write.
func (p *Prover) RecordBaseline(ctx context.Context) error {
	return p.Rooms.recordBaseline(ctx, p.State)
}

// Prove runs the checks, and views the pages if the project has a development server.
func (p *Prover) Prove(ctx context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	pc, cfg, shell := p.config()
	if cfg.Order.Dev == nil {
		pr, err := p.run(ctx, pc, base, head)
		return pr, nil, err
	}
	look := newLook(cfg, shell)
	pc.Visit = look.visit
	pr, err := p.run(ctx, pc, base, head)
	return pr, look.compare(ctx, pr), err
}

// maxBaseRuns bounds the stored results of the checks on the base, in bytes.
const maxBaseRuns = 64 << 20

// keepBase keeps the results of the checks on base, and the files of base's room, for later tasks.
func (p *Prover) keepBase(ctx context.Context, known *proof.BaseRuns) error {
	why, err := p.Rooms.Snapshots.KeepRoom(ctx)
	b, merr := json.Marshal(known)
	if err = errors.Join(why, err, merr); merr == nil && len(b) <= maxBaseRuns {
		err = errors.Join(err, p.Rooms.Snapshots.Attach(known.Commit, []byte(p.Config().Redact.String(string(b)))))
	}
	return err
}

// Endless returns the detected checks that did not end on base in an earlier proof.
func (p *Prover) Endless(base string) []workorder.LeftOut {
	return p.baseRuns(base).Endless(base, p.Config().Order)
}

// baseRuns returns the results of an earlier proof of base; nil if there are none.
func (p *Prover) baseRuns(base string) *proof.BaseRuns {
	if p.Rooms.Snapshots == nil {
		return nil
	}
	known := &proof.BaseRuns{}
	if err := json.Unmarshal(p.Rooms.Snapshots.Attached(base), known); err != nil {
		return nil
	}
	return known
}

// run notes on a proof without clean environments that it counts less.
func (p *Prover) run(ctx context.Context, pc proof.Config, base, head string) (*workorder.Proof, error) {
	// Otherwise code of the commits could read commits that the agent's attempts pushed.
	defer p.Repo.Gate.Only(pc.Mirror.Dir)()
	if pc.Rooms != nil {
		pc.BaseRuns = p.baseRuns(base)
	}
	pr, err := proof.Run(ctx, pc, base, head)
	if pc.Rooms == nil {
		pr.Reasons = pr.Reasons.And(workorder.ReasonRoomNotClean, "the Supabase stack cannot be reset: both sides ran next to the agent's data")
	}
	return pr, err
}

// Checks is Prove without viewing pages.
func (p *Prover) Checks(ctx context.Context, base, head string) (*workorder.Proof, error) {
	pc, _, _ := p.config()
	return p.run(ctx, pc, base, head)
}

type shellFunc = func(ctx context.Context, c proof.CommandLine) runner.ShellResult

// config returns the configuration of a proof without pages, and its parts.
func (p *Prover) config() (proof.Config, runner.Config, shellFunc) {
	cfg := p.Config()
	mirror := p.Repo.Repos.Before()
	shell := func(ctx context.Context, c proof.CommandLine) runner.ShellResult {
		side := cfg
		side.Workspace, side.Env, side.User = c.Dir, c.Env, c.User
		// A check that fails on base, as it should, looks like a problem in a live view: only logs have the output.
		side.Emit = func(e workorder.Event) {
			if e.Type != workorder.EventOutput {
				cfg.Emit(e)
			}
		}
		return runner.Shell(ctx, side, runner.ShellCommand{Name: c.Name, Run: c.Run, Log: c.Log})
	}
	pc := proof.Config{
		Containers: p.Containers,
		Took:       cfg.Took,
		Order:      cfg.Order, Mirror: mirror, Objects: p.Repo.Repos.Outbox(), Dir: p.Dir,
		Home: cfg.Home, Workspace: cfg.Workspace, OutDir: cfg.OutDir, User: cfg.User, Env: cfg.Env, Emit: cfg.Emit, Redact: cfg.Redact,
		Prepare: func(ctx context.Context, dir string, user *proc.Credential) error {
			w := &rootgit.Workspace{Dir: dir, User: user, Home: cfg.Home}
			warning, err := w.WriteEnvFile(ctx, cfg.Order.Env)
			if warning != "" {
				cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: warning})
			}
			return err
		},
		Shell: func(ctx context.Context, c proof.CommandLine) proof.Outcome {
			r := shell(ctx, c)
			return proof.Outcome{ExitCode: r.ExitCode, Duration: r.Duration, Err: r.Err, Warning: r.Warning}
		},
	}
	if !cfg.Order.Supabase {
		pc.Rooms = p.Rooms
	}
	if pc.Rooms != nil && p.Rooms.Snapshots != nil && cfg.Order.Mode != workorder.ModeRebase {
		pc.KeepBase = p.keepBase
	}
	return pc, cfg, shell
}
