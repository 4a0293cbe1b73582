package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type stopOptions struct {
	timeout time.Duration
	json    bool
}

func newStopCmd(a *App) *cobra.Command {
	o := &stopOptions{}
	cmd := &cobra.Command{
		Use: "stop TASK | SANDBOX", Short: "Stop a task; the work so far is pushed. Or a sandbox without a task; its files stay", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Long:              "Stop asks the sandbox to end: the agent is stopped, its work is saved and pushed, and the\nresult is collected. What has not ended after --timeout is killed.\n\nA sandbox without a task, by its name, ends with everything in it and keeps its files; the next command\nstarts it again.",
		Example:           "  sandbox-agent stop T-A1B2C3D4\n  sandbox-agent stop A1B2 --timeout 30s\n  sandbox-agent stop dev",
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], a) },
	}
	cmd.Flags().DurationVar(&o.timeout, "timeout", runtime.StopTimeout, "how long the sandbox may take to land (0 kills it)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the task's state as JSON")
	return cmd
}

func (o *stopOptions) do(ctx context.Context, id string, a *App) error {
	if o.timeout < 0 {
		return usage("--timeout %s is negative", o.timeout)
	}
	st, rec, err := a.task(ctx, id)
	if errors.Is(err, store.ErrNotFound) && a.Sandboxes != nil && sandbox.ValidName(id) {
		return o.sandbox(ctx, id, a)
	}
	if err != nil {
		return err
	}
	if rec, err = a.stopping(st).Run(ctx, rec, o.timeout); err != nil {
		return err
	}
	if o.json {
		return a.json(stateOf(st, rec, nil, nil))
	}
	fmt.Fprintf(a.Stdout, "%s %s\n", rec.TaskID, rec.Status)
	return nil
}

// sandbox stops one without a task.
func (o *stopOptions) sandbox(ctx context.Context, name string, a *App) error {
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	sb, err := m.Get(ctx, name)
	if errors.Is(err, sandbox.ErrNotFound) {
		return fault.New(workorder.ExitNotFound, fmt.Errorf("there is no task and no sandbox %s", name), "`sandbox-agent ps --all` lists them")
	}
	if err == nil {
		err = sb.Stop(ctx)
	}
	if err != nil {
		return sandboxError(err)
	}
	if o.json {
		return a.json(sandbox.Info{Name: name, Image: sb.Spec().Image, Spec: sb.Spec()})
	}
	fmt.Fprintln(a.Stdout, name+" is stopped")
	return nil
}

// stopping stops tasks on the engine that the environment names. It opens the engine when there is a box
// to stop.
func (a *App) stopping(st *store.Store) *tasks.Stopping {
	return &tasks.Stopping{Store: st, Boxes: &boxes{a: a}, Patience: a.patience}
}
