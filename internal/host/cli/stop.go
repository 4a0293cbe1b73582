package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/collect"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
)

type stopOptions struct {
	timeout time.Duration
	json    bool
}

func newStopCmd(a *App) *cobra.Command {
	o := &stopOptions{}
	cmd := &cobra.Command{
		Use: "stop TASK", Short: "Stop a task; the work so far is pushed", Args: oneTask,
		ValidArgsFunction: a.completeTasks(false),
		Long:              "Stop asks the box to end: the agent is stopped, its work is saved and pushed, and the\nresult is collected. What has not ended after --timeout is killed.",
		Example:           "  sandbox-agent stop T-A1B2C3D4\n  sandbox-agent stop A1B2 --timeout 30s",
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], a) },
	}
	cmd.Flags().DurationVar(&o.timeout, "timeout", runtime.StopTimeout, "how long the box may take to land (0 kills it)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the task's state as JSON")
	return cmd
}

func (o *stopOptions) do(ctx context.Context, id string, a *App) error {
	if o.timeout < 0 {
		return usage("--timeout %s is negative", o.timeout)
	}
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return err
	}
	// Who holds a task that is over is looking whether it can go on with it: what is to
	// be stopped is a moment away.
	wait, cancel := a.waiting(ctx, tasks.DecideWait)
	defer cancel()
	for rec.Collected && st.Held(rec.TaskID) {
		if tasks.Pause(wait, tasks.LockPause); wait.Err() != nil {
			return tasks.GaveUp(wait, st.LockPath(rec.TaskID), rec.TaskID)
		}
		if rec, err = st.Load(rec.TaskID); err != nil {
			return err
		}
	}
	if !rec.Collected {
		be, err := a.open()
		if err != nil {
			return err
		}
		l := a.launcher(be, st, nil)
		if rec, err = settle(ctx, st, l, rec, o.timeout); err != nil {
			return err
		}
	}
	if o.json {
		return a.json(stateOf(st, rec, nil, nil))
	}
	fmt.Fprintf(a.Stdout, "%s %s\n", rec.TaskID, rec.Status)
	return nil
}

// settle stops the task, also one whose box is just being started, and waits until
// it is collected: by its own CLI when that lives, else by us.
func settle(ctx context.Context, st *store.Store, l *launch.Launcher, rec *store.Record, grace time.Duration) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, grace+collect.CollectTimeout)
	defer cancel()
	stopped := false
	for {
		if !stopped {
			// Its command goes from one state to the next meanwhile, perhaps to the next attempt.
			fresh, err := st.Load(rec.TaskID)
			if err != nil {
				return nil, err
			}
			if !fresh.Collected {
				rec = fresh
			}
			if stopped, err = l.Host().Stop(ctx, rec, grace); err != nil {
				return nil, err
			}
		}
		lock, err := st.TryLock(rec.TaskID)
		switch {
		case err == nil:
			fresh, err := st.Load(rec.TaskID)
			if err == nil && !fresh.Collected {
				_, err = l.Collect(ctx, fresh)
			}
			lock.Unlock()
			return fresh, err
		case !errors.Is(err, store.ErrLocked):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the other command to collect %s: %w", rec.TaskID, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
