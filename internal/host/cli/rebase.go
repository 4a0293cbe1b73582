package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rebaseOptions struct {
	createOptions
	targetBranch string
	onto         string
	foreign      bool
	pr           int
}

func newRebaseCmd(a *App) *cobra.Command {
	o := &rebaseOptions{}
	var id string
	cmd := &cobra.Command{
		Use:   "rebase [TASK] [--pr N] [flags]",
		Short: "Put a task's commits on the latest base; the agent resolves conflicts",
		Long: `Rebase moves the commits of a task's branch onto the newest commit of its base branch, or of
--onto. Without conflicts no agent runs and no model is asked. With conflicts the agent
resolves them, within what is left of budget and time. Authors and messages are kept.
Merges on the branch are left out: the commits that they brought are moved one by one.

The project's checks run on the new head before the branch is moved, and on the new base: what
merges cleanly and breaks a test is not pushed over the branch. Then the new commits are kept
beside it, as they are when conflicts stay unresolved; the branch is as it was.

When it is moved, the head before is kept on the remote, and a comment on the pull request
says which commits are the same, which changed and why. Commits that somebody else pushed since the last
attempt are a reason to refuse; --with-foreign moves them as well. What is pushed during the
rebase is never overwritten.`,
		Example: `  sandbox-agent rebase T-A1B2C3D4
  sandbox-agent rebase --pr 7 --project my-app
  sandbox-agent rebase A1B2 --onto release-2
  sandbox-agent rebase A1B2 --with-foreign`,
		ValidArgsFunction: a.completeTasks(false),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneTask(cmd, args)
			}
			if len(args) == 1 {
				id = args[0]
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			if id != "" && o.taskID != "" && id != o.taskID {
				return usage("give the task once: %s or --task-id %s", id, o.taskID)
			}
			o.taskID = cmp.Or(o.taskID, id)
			if cmd.Flags().Changed("pr") && o.pr <= 0 {
				return usage("--pr %d is no pull request's number", o.pr)
			}
			return a.runRebase(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.pr, "pr", 0, "number of the pull request whose task it is")
	f.StringVar(&o.onto, "onto", "", "branch to put the commits on (default: the task's base branch)")
	f.BoolVar(&o.foreign, "with-foreign", false, "also move commits that somebody else pushed to the branch")
	f.Lookup("task-id").Usage = "the task, as TASK"
	f.StringVar(&o.targetBranch, "target-branch", "", "the task's branch (default: found on the remote)")
	for _, flag := range []string{"task", "task-file"} {
		// A rebase adds nothing to the task. It fails only for a flag that is not there.
		_ = f.MarkHidden(flag)
	}
	return cmd
}

// rebasing is what a task is picked up for.
type rebasing struct {
	order workorder.Rebase
	pull  *taskPull // nil: the task was named
}

func (a *App) runRebase(ctx context.Context, o *rebaseOptions) error {
	switch {
	case o.taskID == "" && o.pr == 0:
		return fault.New(workorder.ExitUsage, errors.New("no task given"), "give its id, or its pull request with --pr N: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.taskSet || o.taskFileSet:
		return usage("a rebase adds nothing to the task: `sandbox-agent continue TASK --task \"...\"` does")
	case o.onto != "" && !workorder.ValidRefName(o.onto):
		return usage("--onto %q is not a branch's name", o.onto)
	}
	p := &pickUp{
		starter: starter{a: a, o: &o.createOptions, find: credentials.New(a.Getenv)}, branch: o.targetBranch,
		rebase: &rebasing{order: workorder.Rebase{Onto: o.onto, Foreign: o.foreign}},
	}
	rec, err := p.taskToRebase(ctx, o)
	if err != nil {
		return err
	}
	if o.targetBranch != "" && !workorder.OwnBranch(o.taskID, o.targetBranch) {
		return usage("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", o.targetBranch, o.taskID, o.taskID)
	}
	return p.run(ctx, rec)
}

// taskToRebase finds the task by its id or its pull request. The record is nil for a task that this state folder does not know.
func (p *pickUp) taskToRebase(ctx context.Context, o *rebaseOptions) (*store.Record, error) {
	if o.pr != 0 {
		if o.taskID != "" {
			// Its project is known then.
			if _, rec, err := p.a.task(o.taskID); err == nil {
				if err := p.remember(rec); err != nil {
					return nil, err
				}
				o.taskID = rec.TaskID
			}
		}
		r, err := p.a.loadGround(ctx, p.o)
		if err != nil {
			return nil, err
		}
		if p.rebase.pull, err = p.a.taskPull(ctx, r.project, o.pr); err != nil {
			return nil, err
		}
		if task := p.rebase.pull.task; o.taskID != "" && fullID(o.taskID) != task {
			return nil, usage("pull request #%d is that of task %s, not of %s", o.pr, task, o.taskID)
		}
		o.taskID = p.rebase.pull.task
	}
	st, rec, err := p.a.task(o.taskID)
	if err == nil {
		o.taskID = rec.TaskID
		return rec, nil
	}
	if full := fullID(o.taskID); st != nil && fault.Code(err) == workorder.ExitNotFound && workorder.ValidTaskID(full) {
		o.taskID = full
		return nil, nil
	}
	return nil, err
}

// prepare makes the box reach the forge, also where the project's runs open no pull requests.
func (b *rebasing) prepare(r *resolved) {
	if b.pull == nil {
		return
	}
	pr := workorder.PullRequest{}
	if r.project.PR != nil {
		pr = *r.project.PR
	}
	if b.order.Onto == "" {
		pr.Base = cmp.Or(pr.Base, b.pull.Base) // it stays where it is
	}
	r.project.PR = &pr
}

// rehearseRebase prints what would be done, for which the remote is asked.
func (p *pickUp) rehearseRebase(ctx context.Context, rec *store.Record) error {
	branch, base := p.branch, ""
	if rec != nil {
		if err := p.remember(rec); err != nil {
			return err
		}
		branch, base = cmp.Or(branch, rec.TargetBranch), rec.Branch
	}
	r, on, err := p.look(ctx)
	if err == nil && !on.known {
		err = p.nowhere(r)
	}
	if err == nil {
		err = p.order(r, on, "", branch, base)
	}
	if err != nil {
		return err
	}
	on.tell(r.job, rec)
	return p.a.dryRun(r)
}
