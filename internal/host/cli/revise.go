package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
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
		Short: "Let the agent address the review of a task's pull request",
		Long: `Revise goes on with a task in a new sandbox and gives the agent the feedback on its pull
request: all review threads that are not resolved, and reviews and comments since the last
time, those of bots included. Each is a numbered item. Afterwards each thread gets a reply
with the commits that address it or the agent's reason, and is resolved only where commits
address it and the project's own checks, run apart from the agent, are green.

Only who may write to the repository can command. What others write, bots included, is
shown to the agent as a quotation; --task "..." says what to do with it.

The task is that of the pull request's branch; where the state folder knows the task, its
id is enough. --feedback-file takes feedback from a file, without any forge: each entry
of its outermost lists is an item, and what stands before the first one introduces them. A text
given with --task is an addition to the task, as is that introduction. When there is nothing
to address no sandbox is started and the exit code is 0.`,
		Example: `  sandbox-agent revise --pr 7 --project my-app
  sandbox-agent revise T-A1B2C3D4
  sandbox-agent revise A1B2 --feedback-file review.md
  sandbox-agent revise --pr 7 --dry-run
  sandbox-agent revise --pr 7 --task "Do what the linter's bot says, too"`,
		ValidArgsFunction: a.completeTasks(false),
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
	f.StringVar(&o.feedbackFile, "feedback-file", "", "file with feedback, in place of the pull request's or beside that of --pr; - reads standard input")
	return cmd
}

func (o *reviseOptions) do(ctx context.Context, a *App) error {
	switch {
	case o.next.run.taskID == "" && o.next.pr == 0:
		return fault.New(workorder.ExitUsage, errors.New("no task given"), "give its pull request with --pr N, or its id: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.feedbackFile == "-" && o.next.run.text.stdin():
		return usage("standard input can be the feedback or the task, not both")
	}
	p, err := o.next.job(ctx, a, tasks.Revise)
	if err != nil {
		return err
	}
	if o.feedbackFile != "" {
		if p.feedback, err = readFeedbackFile(ctx, a, o.feedbackFile); err != nil {
			return err
		}
		switch intro := p.feedback.Intro; {
		case p.asked.Text == "":
			p.asked.Text = intro
		case intro != "":
			p.asked.Text = intro + "\n\n" + p.asked.Text
		}
	}
	rec, err := p.findPull(ctx, o)
	return p.runKnown(ctx, rec, err)
}

// findPull finds the task by its pull request, or the pull request by its task.
func (p *taskJob) findPull(ctx context.Context, o *reviseOptions) (rec *store.Record, err error) {
	if o.next.pr == 0 && o.feedbackFile == "" {
		if rec, err = p.knownHere(ctx); err != nil {
			return nil, err
		}
	}
	pr, err := tasks.PullOf(p.o.taskID, rec, o.next.pr, o.feedbackFile != "")
	if err != nil {
		return nil, err
	}
	return p.taskOf(ctx, pr)
}
