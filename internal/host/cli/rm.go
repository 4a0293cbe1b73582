package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/upkeep"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rmOptions struct{ force bool }

func newRmCmd(a *App) *cobra.Command {
	o := &rmOptions{}
	cmd := &cobra.Command{
		Use: "rm TASK | SANDBOX...", Short: "Remove tasks and sandboxes",
		ValidArgsFunction: a.CompleteEither(true),
		Long: `Removes the record and the output directory of a task. A task that still runs,
is on another engine or has a damaged record is removed only with --force. The
branch that the task pushed stays, and so do its refs on the remote;
docs/tasks.md has the git command that removes them.

Removes standalone sandboxes as 'down' does; one that runs only with --force.`,
		Example: "  sandbox-agent rm T-A1B2C3D4\n  sandbox-agent rm --force A1B2",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := o.do(cmd.Context(), id, a); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Args = each(someTasks, app.CheckTask)
	cmd.Flags().BoolVarP(&o.force, "force", "f", false, "also remove what runs, and forget what is on another engine")
	return cmd
}

func (o *rmOptions) do(ctx context.Context, id string, a *App) error {
	sb, done, err := a.eitherSandbox(ctx, id)
	if err != nil {
		return err
	}
	if sb != nil {
		defer done()
		return o.sandbox(ctx, sb, a)
	}
	st, rec, err := a.task(ctx, id)
	if damaged, ok := errors.AsType[*store.DamagedError](err); ok && o.force {
		return forget(ctx, a, st, damaged.TaskID)
	}
	if err != nil {
		return err
	}
	if !rec.Collected || slices.ContainsFunc(rec.Attempts(), func(t store.Attempt) bool { return t.Keep || t.Unsure }) {
		be, err := a.open()
		if err != nil {
			return err
		}
		l := a.tasks(nil).Launcher(be, st, nil)
		left, err := l.Discard(ctx, rec, o.force)
		if err != nil {
			if errors.Is(err, launch.ErrRunning) {
				return fault.New(workorder.ExitGeneral, err, "stop it first (`sandbox-agent stop "+rec.TaskID+"`) or use --force")
			}
			return err
		}
		if !rec.Collected {
			// Its own CLI, if it lives, collects now; the folder is removed after that.
			if _, err := a.tasks(nil).Stopping(st).EndBox(ctx, rec, 0); err != nil && (!o.force || !errors.Is(err, launch.ErrElsewhere)) {
				return err
			}
		}
		for _, box := range left {
			fmt.Fprintln(a.Stderr, "warning: left behind: "+box+": `sandbox-agent gc` with that engine removes it when it has ended")
		}
	}
	if err := st.Remove(rec); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, rec.TaskID)
	return nil
}

// sandbox removes one without a task.
func (o *rmOptions) sandbox(ctx context.Context, sb *sandbox.Sandbox, a *App) error {
	if sb.Info().State == sandbox.StateRunning && !o.force {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s runs", sb.Name()), "stop it first (`sandbox-agent stop "+sb.Name()+"`), or use --force or `sandbox-agent down`")
	}
	err := sb.Remove(ctx, sandbox.RemoveOptions{})
	if o.force && errors.Is(err, sandbox.ErrUnsaved) {
		err = sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	}
	if err != nil {
		return sandboxError(err)
	}
	a.warnOfRepositories(ctx, sb)
	fmt.Fprintln(a.Stdout, sb.Name())
	return nil
}

// forget removes the rest of a task whose record is damaged. An output outside of its
// folder stays, as only the record knew its place.
func forget(ctx context.Context, a *App, st *store.Store, id string) error {
	be, err := a.open()
	if err != nil {
		return err
	}
	lock, err := st.TryLock(id)
	if err != nil {
		return fault.New(workorder.ExitGeneral, err, "end that command first")
	}
	defer lock.Unlock()
	boxes, err := upkeep.OwnBoxes(ctx, be.Engine, st, map[string]string{workorder.LabelTask: id})
	if err != nil {
		return err
	}
	for _, b := range boxes {
		if err := be.Engine.Remove(ctx, b.ID); err != nil {
			return err
		}
	}
	if err := st.Remove(&store.Record{TaskID: id}); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, id)
	return nil
}
