package taskcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rebaseOptions struct {
	next    nextOptions
	onto    string
	foreign bool
}

// NewCmdRebase makes the command.
func NewCmdRebase(f *cmdutil.Factory) *cobra.Command {
	o := &rebaseOptions{}
	cmd := &cobra.Command{
		Use:   "rebase [TASK] [--pr N] [flags]",
		Short: "Rebase a task's branch onto the latest base",
		Long: `Moves the commits of a task's branch onto the newest commit of its base branch,
or of --onto. The agent runs only to resolve conflicts, within the remaining
budget and time. Authors and messages are kept. Merge commits are dropped; the
commits that they brought are moved one by one.

The project's checks run on the new head and on the new base before the branch
moves. If they fail, or if conflicts stay unresolved, the branch stays as it is
and the new commits are kept beside it.

When the branch moves, the previous head is kept on the remote, and a comment on
the pull request says which commits changed and why. The command refuses to move
commits that other people pushed since the last attempt; --include-others
moves them, too. Commits that are pushed during the rebase are never overwritten.`,
		Example: `  sandbox-agent rebase T-A1B2C3D4
  sandbox-agent rebase --pr 7 --project my-app
  sandbox-agent rebase A1B2 --onto release-2`,
		ValidArgsFunction: f.CompleteTasks(false),
		Args:              func(cmd *cobra.Command, args []string) error { return o.next.taskArg(cmd, args, false) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.next.read(cmd.Flags(), f.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), f)
		},
	}
	o.next.flags(f, cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.next.pr, "pr", 0, "number of the pull request (default: the task's)")
	flags.StringVar(&o.onto, "onto", "", "branch to rebase onto (default: the task's base branch)")
	flags.BoolVar(&o.foreign, "include-others", false, "also move commits that other people pushed to the branch")
	cmdutil.OldFlag(flags, "with-foreign", "include-others")
	for _, flag := range []string{"task", "task-file"} {
		// A rebase adds nothing to the task. The call can only fail for a flag that does not exist.
		_ = flags.MarkHidden(flag)
	}
	return cmd
}

func (o *rebaseOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	switch {
	case o.next.run.taskID == "" && o.next.pr == 0:
		return exiterr.New(workorder.ExitUsage, errors.New("no task given"),
			"give its id, or its pull request with --pr N: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.next.run.text.given():
		return app.Usagef("a rebase adds nothing to the task: `sandbox-agent continue TASK --task \"...\"` does")
	case o.onto != "" && !workorder.ValidRefName(o.onto):
		return app.Usagef("--onto %q is not a branch's name", o.onto)
	}
	r, err := o.next.request(ctx, f)
	if err != nil {
		return err
	}
	r.Rebase = &workorder.Rebase{Onto: o.onto, Foreign: o.foreign}
	t := o.next.run.tasks(f)
	out, err := t.Rebase(ctx, r)
	return o.next.run.answer(ctx, f, t, out, err)
}
