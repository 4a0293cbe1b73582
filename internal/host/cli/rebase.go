package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rebaseOptions struct {
	next    nextOptions
	onto    string
	foreign bool
}

func newRebaseCmd(a *App) *cobra.Command {
	o := &rebaseOptions{}
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
		Args:              func(cmd *cobra.Command, args []string) error { return o.next.taskArg(cmd, args, false) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.next.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), a)
		},
	}
	o.next.flags(a, cmd)
	f := cmd.Flags()
	f.IntVar(&o.next.pr, "pr", 0, "number of the pull request whose task it is")
	f.StringVar(&o.onto, "onto", "", "branch to put the commits on (default: the task's base branch)")
	f.BoolVar(&o.foreign, "with-foreign", false, "also move commits that somebody else pushed to the branch")
	for _, flag := range []string{"task", "task-file"} {
		// A rebase adds nothing to the task. The call can only fail for a flag that does not exist.
		_ = f.MarkHidden(flag)
	}
	return cmd
}

func (o *rebaseOptions) do(ctx context.Context, a *App) error {
	switch {
	case o.next.run.taskID == "" && o.next.pr == 0:
		return fault.New(workorder.ExitUsage, errors.New("no task given"), "give its id, or its pull request with --pr N: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.next.run.text.given():
		return usage("a rebase adds nothing to the task: `sandbox-agent continue TASK --task \"...\"` does")
	case o.onto != "" && !workorder.ValidRefName(o.onto):
		return usage("--onto %q is not a branch's name", o.onto)
	}
	p, err := o.next.job(ctx, a, tasks.Rebase)
	if err != nil {
		return err
	}
	p.rebase = &workorder.Rebase{Onto: o.onto, Foreign: o.foreign}
	rec, err := p.taskOf(ctx, o.next.pr)
	return p.runKnown(ctx, rec, err)
}
