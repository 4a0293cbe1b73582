package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// task is the runner as boot sees it.
type task struct {
	cfg   runner.Config
	agent runner.AgentOutcome

	mu   sync.Mutex
	lost []string // what the services' watcher said
}

// lose notes a service that failed during the run.
func (t *task) lose(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, text)
}

func (t *task) Shell(ctx context.Context, name, command string) (exitCode int, tail string, err error) {
	r := runner.Shell(ctx, t.cfg, runner.ShellCommand{Name: name, Run: command, Log: workorder.LogsDir + "/" + name + ".log"})
	if r.ExitCode > 0 && ctx.Err() == nil {
		return r.ExitCode, r.Tail, nil // the command's own failure, not a stop
	}
	return r.ExitCode, r.Tail, r.Err
}

func (t *task) Continue(c boot.Cloned) {
	// Ours, the last one, has only begun.
	before := c.State.Attempts[:max(0, len(c.State.Attempts)-1)]
	t.cfg.SpentUSD = c.State.SpentUSD()
	t.cfg.Prompt = runner.Continuing(t.cfg.Order.Task, runner.History{
		Order: strings.Join(c.State.Added, "\n\n"), Attempts: before, Branch: c.State.TargetBranch,
		Base: c.Base, BaseSHA: c.BaseSHA, Head: c.Head, Commits: c.Commits, Restored: c.Restored, Changed: c.Changed, Now: time.Now(),
	})
}

func (t *task) Agent(ctx context.Context) boot.AgentEnd {
	t.cfg.Deadline, _ = ctx.Deadline()
	t.agent = runner.Agent(ctx, t.cfg)
	a := t.agent
	return boot.AgentEnd{
		Agent: a.Agent, Usage: a.Usage, Status: a.Status, Reason: a.Reason, ResumeAt: a.ResumeAt, Evidence: a.Evidence, Warnings: a.Warnings,
	}
}

func (t *task) Validate(ctx context.Context) []workorder.Validation {
	return runner.Validate(ctx, t.cfg)
}

func (t *task) Verdict(checks []workorder.Validation, commits int, cause error) (workorder.Status, workorder.EndedBy, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := runner.Verdict(runner.Facts{
		Agent: t.agent, Validation: checks, HasRepo: t.cfg.Order.Repo != "", Commits: commits, Cause: cause, Lost: t.lost,
	})
	return e.Status, e.EndedBy, e.Reason
}

func (t *task) Setenv(name, value string) { t.cfg.Env = append(t.cfg.Env, name+"="+value) }
