package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (b prep) makeBox(ctx context.Context) error {
	if err := b.Space.Make(); err != nil {
		return err
	}
	// These start goroutines that outlive the step, whose context ends with it.
	life := context.WithoutCancel(ctx)
	if err := b.Network.Up(life); err != nil {
		return err
	}
	if b.needsDocker() {
		return b.Engine.Listen(ctx)
	}
	// The program that triggers the start of the engine is untrusted.
	if err := b.Network.Seal(ctx); err != nil {
		return err
	}
	if err := b.Engine.Listen(ctx); err != nil {
		return err
	}
	go b.startOnDemand(life)
	return nil
}

// startOnDemand starts the engine for the agent's first docker command. If that fails,
// the waiting client's connection is closed and the reason becomes a warning of the run.
func (b prep) startOnDemand(ctx context.Context) {
	if err := b.Engine.StartOnDemand(ctx); err != nil {
		b.Rec.Warn(fmt.Sprintf("the inner Docker engine did not start: %v", err))
	}
}

func (b prep) clone(ctx context.Context) error {
	c, err := b.Repo.Clone(ctx)
	if done, told := errors.AsType[*DoneError](err); told {
		return &pipeline.Stop{Why: done.Error(), Err: err}
	}
	if err != nil {
		return err
	}
	b.cloned = &c
	b.Rec.Update(func(r *workorder.Result) {
		// rescue needs this if this process dies.
		r.Mode = b.Order.Mode // known by now, also for an order that may continue a task
		r.BaseBranch, r.BaseSHA, r.HeadSHA, r.Branch = c.Base, c.BaseSHA, c.Head, b.Order.TargetBranch
		r.Attempt, r.Restored, r.Earlier = c.Attempt, c.Restored, earlier(c.State, b.Order.AttemptID)
		if c.State != nil && c.State.Task != "" {
			r.Asked = c.State.Asked()
		}
	})
	return nil
}

func (b prep) supabase(ctx context.Context) error {
	env, err := b.Services.Supabase(ctx)
	if err != nil {
		return err
	}
	for k, v := range env {
		if _, own := b.Order.Env[k]; !own { // the project's variables take precedence
			b.Order.Env[k] = v
			b.Task.Setenv(k, v)
		}
	}
	return nil
}

func (b prep) writeEnv(ctx context.Context) error {
	warning, err := b.Space.WriteEnvFile(ctx, b.Order.Env)
	if warning != "" {
		b.Rec.Warn(warning)
	}
	return err
}

func (b prep) setup(ctx context.Context) error {
	if err := b.Engine.Mark(ctx); err != nil {
		return err
	}
	for i, command := range b.Order.Setup {
		code, tail, err := b.Task.Shell(ctx, fmt.Sprintf("setup-%d", i+1), command)
		if err != nil {
			return fmt.Errorf("run %q: %w", command, err)
		}
		if code != 0 {
			return &commandError{command: command, code: code, tail: tail}
		}
	}
	if b.cloned != nil {
		if err := b.Repo.Baseline(ctx); err != nil {
			b.Rec.Warn(fmt.Sprintf("what setup left in the work tree may be taken for the agent's work: %v", err))
		}
	}
	return nil
}

// commandError is the error of a failed project command.
type commandError struct {
	command string
	code    int
	tail    string
}

func (e *commandError) Error() string {
	s := fmt.Sprintf("%q exited with %d", e.command, e.code)
	if t := strings.TrimSpace(e.tail); t != "" {
		s += ": " + t
	}
	return s
}

func (e *commandError) ExitCode() int { return e.code }
