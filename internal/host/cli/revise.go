package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type reviseOptions struct {
	next         nextOptions
	feedbackFile string
}

func newReviseCmd(a *App) *cobra.Command {
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
		ValidArgsFunction: a.CompleteTasks(false),
		Args:              func(cmd *cobra.Command, args []string) error { return o.next.taskArg(cmd, args, true) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.next.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), a)
		},
	}
	o.next.flags(a, cmd)
	o.next.moreFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.next.pr, "pr", 0, "number of the pull request (default: the task's)")
	f.StringVar(&o.feedbackFile, "feedback-file", "", "read feedback from a file; - is standard input")
	return cmd
}

func (o *reviseOptions) do(ctx context.Context, a *App) error {
	switch {
	case o.next.run.taskID == "" && o.next.pr == 0:
		return fault.New(workorder.ExitUsage, errors.New("no task given"),
			"give its pull request with --pr N, or its id: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.feedbackFile == "-" && o.next.run.text.stdin():
		return usage("standard input can be the feedback or the task, not both")
	}
	r, err := o.next.request(ctx, a)
	if err != nil {
		return err
	}
	if o.feedbackFile != "" {
		feedback, err := readFeedbackFile(ctx, a, o.feedbackFile)
		if err != nil {
			return err
		}
		r.Feedback = &feedback
	}
	t := a.tasks(&o.next.run)
	out, err := t.Revise(ctx, r)
	return o.next.run.answer(ctx, a, t, out, err)
}
