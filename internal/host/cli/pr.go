package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
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
		RunE: func(cmd *cobra.Command, args []string) error { return a.runPROpen(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVar(&o.draft, "draft", false, "open it as a draft")
	cmd.Flags().StringVar(&o.base, "base", "", "branch to merge into (default: the project's, else the task's base branch)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the pull request as JSON")
	return cmd
}

func (a *App) runPROpen(ctx context.Context, id string, o *prOptions) error {
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return err
	}
	if !rec.Collected {
		if rec, err = a.collect(ctx, st, rec); err != nil {
			return err
		}
	}
	res, err := launch.ReadResult(rec)
	if err != nil {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s has no result: %w", rec.TaskID, err), "`sandbox-agent logs "+rec.TaskID+"` shows how far it came")
	}
	order, err := savedOrder(rec.Dir)
	if err != nil {
		return err
	}
	if order.PR == nil {
		order.PR = &workorder.PullRequest{}
	}
	order.PR.Draft = order.PR.Draft || o.draft
	if o.base != "" {
		order.PR.Base = o.base
	}
	if why := pullrequest.Why(order, res); why != "" {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("there is nothing to open for task %s: %s", rec.TaskID, why), "`sandbox-agent result "+rec.TaskID+"` shows what there is")
	}
	client, err := a.forge(ctx, order)
	if err != nil {
		return err
	}
	if client.token.Token == "" {
		return fault.New(workorder.ExitGit, fmt.Errorf("there is no token for the forge of %s", render.Clean(order.Repo)),
			"set SANDBOX_AGENT_GIT_TOKEN (for GitHub also GH_TOKEN), log in with `gh auth login`, or name a GitHub App (docs/pull-requests.md)")
	}
	told, _ := launch.Tell(rec, res)
	pr, warnings, err := pullrequest.Open(ctx, client.Client, order, res, told)
	for _, w := range warnings {
		fmt.Fprintln(a.Stderr, "warning: "+render.Clean(w))
	}
	if pr == nil {
		return client.fault(err)
	}
	if err := errors.Join(client.fault(err), launch.Amend(rec, func(r *workorder.Result) { r.PR = pr })); err != nil {
		return err
	}
	if err := giveAnswers(ctx, client, order, rec, res, pr); err != nil {
		return err
	}
	if o.json {
		return a.json(pr)
	}
	fmt.Fprintf(a.Stdout, "#%d %s %s\n", pr.Number, render.Clean(pr.State), render.Clean(pr.URL))
	return nil
}

// giveAnswers posts what the run could not say about the feedback that it addressed.
func giveAnswers(ctx context.Context, client *forgeClient, order *workorder.Order, rec *store.Record, res *workorder.Result, pr *workorder.PR) error {
	if pullrequest.WhyNotAnswer(order, res) != "" {
		return nil
	}
	answers, err := pullrequest.Answer(ctx, client.Client, order, res, pr.Number)
	return errors.Join(client.fault(err), launch.Amend(rec, func(r *workorder.Result) { r.Review = answers }))
}

// savedOrder is the order of a task's last attempt, which has no secrets in it.
func savedOrder(dir string) (*workorder.Order, error) {
	b, err := os.ReadFile(filepath.Join(dir, workorder.OrderFile))
	if err != nil {
		return nil, fmt.Errorf("read the task's order: %w", err)
	}
	return workorder.DecodeOrder(b)
}
