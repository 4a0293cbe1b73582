package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newPRCmd(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pr", Short: "Open the pull request of a task", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPROpenCmd(a))
	return cmd
}

type prOptions struct {
	draft, json bool
	base        string
}

func newPROpenCmd(a *App) *cobra.Command {
	o := &prOptions{}
	cmd := &cobra.Command{
		Use: "open TASK", Short: "Open or update the pull request of a task's branch", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Long: `Open makes the pull request that the run itself could not make: the project has no key pr, the forge
was away, or there was no token. One that is open already gets the body of the last attempt that
proved the branch, and the answers to its reviewers that are missing (see revise). The token
is found as for git: SANDBOX_AGENT_GIT_TOKEN, GH_TOKEN, a GitHub App, gh, git's credential helper.`,
		Example: `  sandbox-agent pr open T-A1B2C3D4
  sandbox-agent pr open A1B2 --draft --base release`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], a) },
	}
	cmd.Flags().BoolVar(&o.draft, "draft", false, "open it as a draft")
	cmd.Flags().StringVar(&o.base, "base", "", "branch to merge into (default: the project's, else the task's base branch)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the pull request as JSON")
	return cmd
}

func (o *prOptions) do(ctx context.Context, id string, a *App) error {
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return err
	}
	flow := reader(a, st)
	flow.Opening = &tasks.Opening{Draft: o.draft, Base: o.base, Connect: func(ctx context.Context, order *workorder.Order) (tasks.Pulls, error) {
		return a.forge(ctx, order)
	}}
	out, err := flow.Run(ctx, tasks.State{Asked: tasks.Asked{Verb: tasks.OpenPR, Task: rec.TaskID}, Record: rec})
	for _, w := range out.Warnings {
		fmt.Fprintln(a.Stderr, "warning: "+text.Clean(w))
	}
	if err != nil || out.PR == nil {
		return err
	}
	if o.json {
		return a.json(out.PR)
	}
	fmt.Fprintf(a.Stdout, "#%d %s %s\n", out.PR.Number, text.Clean(out.PR.State), text.Clean(out.PR.URL))
	return nil
}
