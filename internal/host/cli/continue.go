package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newContinueCmd(a *App) *cobra.Command {
	o := &nextOptions{}
	cmd := &cobra.Command{
		Use:   "continue [TASK] [flags]",
		Short: "Go on with a task in a new sandbox, from its branch and last checkpoint",
		Long: `Continue starts a new sandbox for a task whose last one has ended, however it did: stopped,
out of time or budget, parked at a provider's limit, killed, lost with its machine. The
sandbox restores the branch and the last checkpoint of uncommitted work, and the agent is told
what exists and how the last attempt ended.

Where the state folder knows the task its id is enough: project, flags and output folder
are those it was created with, and flags given now win. Elsewhere (another machine) the
remote knows it: give the full id, and the project or, without a project file, --repo.
A task text that is given is an addition to the task. --max-budget-usd is for all attempts
together.

A task that is done is not started again without a new text. A parked one starts when
its limit resets: --wait waits for that, --now tries at once.`,
		Example: `  sandbox-agent continue T-A1B2C3D4
  sandbox-agent continue A1B2 --task "Also update the changelog"
  sandbox-agent continue A1B2 --wait
  sandbox-agent continue --project my-app --task "..." --task-id T-A1B2C3D4 --target-branch agent/T-A1B2C3D4-add-pagination`,
		ValidArgsFunction: a.completeTasks(false, func(r, s *store.Record) bool { return r.Resumable() && !s.Resumable() }),
		Args:              func(cmd *cobra.Command, args []string) error { return o.taskArg(cmd, args, true) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return o.goOn(cmd.Context(), a)
		},
	}
	o.flags(a, cmd)
	o.moreFlags(cmd)
	return cmd
}

func (o *nextOptions) goOn(ctx context.Context, a *App) error {
	if o.run.taskID == "" {
		return fault.New(workorder.ExitUsage, fmt.Errorf("no task given"), "give its id: `sandbox-agent ps --all` lists the tasks of this machine")
	}
	p, err := o.job(ctx, a, tasks.Continue)
	if err != nil {
		return err
	}
	rec, err := p.knownHere(ctx)
	return p.runKnown(ctx, rec, err)
}

func fullID(id string) string {
	id = strings.ToUpper(strings.TrimSpace(id))
	if !strings.HasPrefix(id, "T-") {
		id = "T-" + id
	}
	return id
}
