package taskcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// NewCmdContinue makes the command.
func NewCmdContinue(f *cmdutil.Factory) *cobra.Command {
	o := &nextOptions{}
	cmd := &cobra.Command{
		Use:   "continue [TASK] [flags]",
		Short: "Resume a task from its branch and last checkpoint",
		Long: `Starts a new sandbox for a task whose last attempt has ended: it was stopped,
reached a limit, was parked at a provider's rate limit, or was lost with its
machine. The sandbox restores the branch and the last checkpoint of uncommitted
work. The agent learns what exists and how the last attempt ended.

On the machine that created the task its id is enough. Without one it is the last
task of the repository in the current directory that can be resumed. Project,
flags and output directory are those of the last attempt; flags given now replace
them. On another machine give the full id, and the project or --repo.

A task text that is given is added to the task. --max-budget-usd covers all
attempts together. A task that is done is resumed only with a new text. A parked
task resumes when its limit resets: --wait waits for that, --now tries at once.`,
		Example: `  sandbox-agent continue T-A1B2C3D4
  sandbox-agent continue A1B2 --task "Also update the changelog"
  sandbox-agent continue A1B2 --wait
  sandbox-agent continue T-A1B2C3D4 --project my-app`,
		ValidArgsFunction: f.CompleteTasks(false, func(t app.RecordedTask) bool { return t.Resumable }),
		Args:              func(cmd *cobra.Command, args []string) error { return o.taskArg(cmd, args, true) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), f.Getenv); err != nil {
				return err
			}
			return o.goOn(cmd.Context(), f)
		},
	}
	o.flags(f, cmd)
	o.moreFlags(cmd)
	return cmd
}

func (o *nextOptions) goOn(ctx context.Context, f *cmdutil.Factory) error {
	r, err := o.request(ctx, f)
	if err != nil {
		return err
	}
	t := o.run.tasks(f)
	out, err := t.Continue(ctx, r)
	return o.run.answer(ctx, f, t, out, err)
}
