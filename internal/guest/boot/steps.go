package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The budgets are bounds for something that hangs, not expectations: each is
// several times what the slowest machine we know needs.
const (
	boxBudget      = 15 * time.Second
	dockerBudget   = 60 * time.Second
	cloneBudget    = 10 * time.Minute // a large repository over a slow line
	servicesBudget = 15 * time.Minute // pulling a gigabyte; readiness has its own bound
	packagesBudget = 10 * time.Minute
	supabaseBudget = 25 * time.Minute // three gigabytes of images the first time
	envBudget      = 15 * time.Second
	groundBudget   = 30 * time.Second // it copies some megabytes at most
)

// steps is the plan of boot. Clone, docker and packages do not depend on each
// other and run at the same time.
func (b *Box) steps() []step {
	o := b.Order
	needsDocker := len(o.Services) > 0 || o.Supabase
	return b.rebaseSteps([]step{
		{
			name: workorder.StepBox, does: "the workspace, the network policy with the gateway, and the guarded Docker socket", budget: boxBudget,
			run:  b.makeBox,
			undo: func(context.Context) { b.Network.Close() },
		},
		{
			name: workorder.StepDocker, does: "start the inner Docker engine", after: []workorder.StepName{workorder.StepBox}, budget: dockerBudget,
			skip: func() string {
				if !needsDocker {
					return "nothing declared needs it; it starts when the agent first uses Docker"
				}
				return ""
			},
			run:  b.Engine.Start,
			undo: b.Engine.Stop,
		},
		{
			name: workorder.StepClone, does: "fetch the repository and check out the task's branch", after: []workorder.StepName{workorder.StepBox}, budget: cloneBudget,
			skip: func() string {
				if o.Repo == "" {
					return "the task has no repository"
				}
				return ""
			},
			run:  b.clone,
			undo: func(context.Context) { b.Repo.Close() },
		},
		{
			name: workorder.StepServices, does: "create the services and wait until they are healthy", after: []workorder.StepName{workorder.StepDocker}, budget: servicesBudget,
			skip: func() string {
				if len(o.Services) == 0 {
					return "the project declares none"
				}
				return ""
			},
			run:  b.Services.Up,
			undo: func(context.Context) { b.Services.Unwatch() },
		},
		{
			name: workorder.StepPackages, does: "install packages of the distribution", after: []workorder.StepName{workorder.StepBox}, budget: packagesBudget,
			skip: func() string {
				if len(o.Packages) == 0 {
					return "the project declares none"
				}
				return ""
			},
			run: func(ctx context.Context) error { return b.Space.Install(ctx, o.Packages) },
		},
		{
			name: workorder.StepGround, does: "note what the image has where the agent can write, for the proof", after: []workorder.StepName{workorder.StepPackages}, budget: groundBudget,
			skip: func() string {
				if b.Prover == nil || len(o.Validate) == 0 && o.Dev == nil {
					return "nothing is to be proven"
				}
				return ""
			},
			run: func(ctx context.Context) error { return b.Prover.Remember(ctx) },
		},
		{
			name: workorder.StepSupabase, does: "start the Supabase stack", after: []workorder.StepName{workorder.StepClone, workorder.StepServices, workorder.StepGround}, budget: supabaseBudget,
			skip: func() string {
				if !o.Supabase {
					return "the project does not ask for it"
				}
				return ""
			},
			run: b.supabase,
		},
		{
			name: workorder.StepEnv, does: "write .env", after: []workorder.StepName{workorder.StepClone, workorder.StepSupabase}, budget: envBudget,
			skip: func() string {
				if o.Repo == "" || len(o.Env) == 0 && !o.Supabase {
					return "there is nothing to write"
				}
				return ""
			},
			run: b.writeEnv,
		},
		{
			name: workorder.StepSetup, does: "run the project's setup commands as user sandbox", after: []workorder.StepName{workorder.StepEnv, workorder.StepServices, workorder.StepPackages, workorder.StepGround},
			skip: func() string {
				if len(o.Setup) == 0 {
					return "the project has no setup commands"
				}
				return ""
			},
			run: b.setup,
		},
	})
}

func (b *Box) makeBox(ctx context.Context) error {
	if err := b.Space.Make(); err != nil {
		return err
	}
	// What these start lives as long as the box, not as the step, whose context ends with it.
	life := context.WithoutCancel(ctx)
	if err := b.Network.Up(life); err != nil {
		return err
	}
	if len(b.Order.Services) > 0 || b.Order.Supabase {
		return b.Engine.Listen(ctx)
	}
	// Whoever makes the engine start is untrusted.
	if err := b.Network.Seal(ctx); err != nil {
		return err
	}
	if err := b.Engine.Listen(ctx); err != nil {
		return err
	}
	go b.startOnDemand(life)
	return nil
}

// startOnDemand starts the engine for the agent's first docker command. The
// client that waits sees its connection close when that fails; the reason is a warning of the run.
func (b *Box) startOnDemand(ctx context.Context) {
	if err := b.Engine.StartOnDemand(ctx); err != nil {
		b.Rec.Warn(fmt.Sprintf("the inner Docker engine did not start: %v", err))
	}
}

func (b *Box) clone(ctx context.Context) error {
	c, err := b.Repo.Clone(ctx)
	if err != nil {
		return err
	}
	b.cloned = &c
	b.Rec.Update(func(r *workorder.Result) {
		// rescue needs to know, when this process dies.
		r.Mode = b.Order.Mode // of an order that may go on it is known now
		r.BaseBranch, r.BaseSHA, r.HeadSHA, r.Branch = c.Base, c.BaseSHA, c.Head, b.Order.TargetBranch
		r.Attempt, r.Restored, r.Earlier = c.Attempt, c.Restored, earlier(c.State, b.Order.AttemptID)
		if c.State != nil && c.State.Task != "" {
			r.Asked = c.State.Asked()
		}
	})
	return nil
}

func (b *Box) supabase(ctx context.Context) error {
	env, err := b.Services.Supabase(ctx)
	if err != nil {
		return err
	}
	for k, v := range env {
		if _, own := b.Order.Env[k]; !own { // what the project says wins
			b.Order.Env[k] = v
			b.Task.Setenv(k, v)
		}
	}
	return nil
}

func (b *Box) writeEnv(ctx context.Context) error {
	warning, err := b.Space.WriteEnvFile(ctx, b.Order.Env)
	if warning != "" {
		b.Rec.Warn(warning)
	}
	return err
}

func (b *Box) setup(ctx context.Context) error {
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

// Plan is the text of the steps.
func (b *Box) Plan() string { return planText(b.steps()) }
