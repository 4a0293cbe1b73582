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

type reviseOptions struct {
	next         nextOptions
	feedbackFile string
}

// NewCmdRevise makes the command.
func NewCmdRevise(f *cmdutil.Factory) *cobra.Command {
	o := &reviseOptions{}
	cmd := &cobra.Command{
		Use:   "revise [TASK] [--pr N] [flags]",
		Short: "Let the agent address the review of a pull request",
		Long: `Resumes a task in a new sandbox and gives the agent the feedback on its pull
request: all unresolved review threads, and reviews and comments since the last
time, also those of bots. Afterwards each thread gets a reply with the commits
that address it, or with the agent's reason. A thread is resolved only where
commits address it and the project's checks pass.

Only people who may write to the repository can give instructions. Other
comments are shown to the agent as quotations; --task says what to do with them.

The task is that of the pull request's branch, or is given by its id.
--feedback-file reads feedback from a file, without a forge: each entry of its
outermost lists is an item, and the text before the first entry is added to the
task. Without feedback no sandbox is started and the exit code is 0.`,
		Example: `  sandbox-agent revise --pr 7 --project my-app
  sandbox-agent revise T-A1B2C3D4
  sandbox-agent revise A1B2 --feedback-file review.md
  sandbox-agent revise --pr 7 --task "Do what the linter's bot says, too"`,
		ValidArgsFunction: f.CompleteTasks(false),
		Args:              func(cmd *cobra.Command, args []string) error { return o.next.taskArg(cmd, args, true) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.next.read(cmd.Flags(), f.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), f)
		},
	}
	o.next.flags(f, cmd)
	o.next.moreFlags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.next.pr, "pr", 0, "number of the pull request (default: the task's)")
	flags.StringVar(&o.feedbackFile, "feedback-file", "", "read feedback from a file; - is standard input")
	return cmd
}

func (o *reviseOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	switch {
	case o.next.run.taskID == "" && o.next.pr == 0:
		return exiterr.New(workorder.ExitUsage, errors.New("no task given"),
			"give its pull request with --pr N, or its id: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.feedbackFile == "-" && o.next.run.text.stdin():
		return app.Usagef("standard input can be the feedback or the task, not both")
	}
	r, err := o.next.request(ctx, f)
	if err != nil {
		return err
	}
	if o.feedbackFile != "" {
		text, err := readText(ctx, f, "feedback", o.feedbackFile, app.MaxFeedback)
		if err != nil {
			return err
		}
		if r.Feedback, err = app.ParseFeedback(text); err != nil {
			return err
		}
	}
	t := o.next.run.tasks(f)
	out, err := t.Revise(ctx, r)
	return o.next.run.answer(ctx, f, t, out, err)
}
