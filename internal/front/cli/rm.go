package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/upkeep"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rmOptions struct{ force, branch, json bool }

func newRmCmd(a *App) *cobra.Command {
	o := &rmOptions{}
	cmd := &cobra.Command{
		Use: "rm TASK | SANDBOX...", Short: "Remove tasks and sandboxes",
		ValidArgsFunction: a.CompleteEither(true),
		Long: `Removes the record and the output directory of a task. A task that still runs,
is on another engine or has a damaged record is removed only with --force. The
branch that the task pushed stays, and so do its refs on the remote;
docs/tasks.md has the git command that removes them.

Removes standalone sandboxes as 'down' does: their files are saved first, if they
have a branch. One that runs is removed only with --force, which also discards
what cannot be saved. With --branch their branches go, too, as with 'delete'.`,
		Example: "  sandbox-agent rm T-A1B2C3D4\n  sandbox-agent rm --force A1B2\n  sandbox-agent rm --branch dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := o.do(cmd.Context(), id, a); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Args = cmdutil.Each(cmdutil.SomeTasks, app.CheckTask)
	cmd.Flags().BoolVarP(&o.force, "force", "f", false, "also remove what runs, and forget what is on another engine")
	cmd.Flags().BoolVar(&o.branch, "branch", false, "also delete the branches of sandboxes")
	cmd.Flags().BoolVar(&o.json, "json", false, "print each removed one as JSON")
	return cmd
}

func (o *rmOptions) do(ctx context.Context, id string, a *App) error {
	sb, done, err := a.Sandboxes().Either(ctx, id)
	if err != nil {
		return o.missing(ctx, id, a, err)
	}
	if sb != nil {
		defer done()
		return o.sandbox(ctx, sb, a)
	}
	if o.branch {
		return fault.New(workorder.ExitUsage, fmt.Errorf("--branch is for sandboxes: %s is a task", id),
			"see \"Forget a task\" in docs/tasks.md for the refs of a task")
	}
	st, rec, err := a.Tasks().Find(ctx, id)
	if damaged, ok := errors.AsType[*store.DamagedError](err); ok && o.force {
		if err := forget(ctx, a, st, damaged.TaskID); err != nil {
			return err
		}
		return o.removed(a, damaged.TaskID)
	}
	if err != nil {
		return err
	}
	if !rec.Collected || slices.ContainsFunc(rec.Attempts(), func(t store.Attempt) bool { return t.Keep || t.Unsure }) {
		be, err := a.Engine()
		if err != nil {
			return err
		}
		l := a.Tasks().Launcher(be, st, nil)
		left, err := l.Discard(ctx, rec, o.force)
		if err != nil {
			if errors.Is(err, launch.ErrRunning) {
				return fault.New(workorder.ExitGeneral, err, "stop it first (`sandbox-agent stop "+rec.TaskID+"`) or use --force")
			}
			return err
		}
		if !rec.Collected {
			// Its own CLI, if it lives, collects now; the folder is removed after that.
			if _, err := a.Tasks().Stopping(st).EndBox(ctx, rec, 0); err != nil && (!o.force || !errors.Is(err, launch.ErrElsewhere)) {
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
	return o.removed(a, rec.TaskID)
}

// removed reports a removal.
func (o *rmOptions) removed(a *App, name string) error {
	return a.Done(o.json, map[string]string{"removed": name}, "%s", name)
}

// missing removes what is left of a sandbox that cannot be opened: by force its record, with --branch its branch.
func (o *rmOptions) missing(ctx context.Context, name string, a *App, err error) error {
	if !o.force && !o.branch || !sandbox.ValidName(name) {
		return err
	}
	m, merr := a.Manager(false)
	if merr != nil {
		return merr
	}
	defer m.Close()
	if o.branch {
		head, err := a.Branches().DeleteNamed(ctx, m, name, app.Deletion{Force: o.force})
		return a.deleted(name, head, o.json, err)
	}
	if ferr := app.Forget(ctx, m, name, err); ferr != nil {
		return a.UnknownName(ctx, name, ferr)
	}
	return o.removed(a, name)
}

// sandbox removes one without a task.
func (o *rmOptions) sandbox(ctx context.Context, sb *sandbox.Sandbox, a *App) error {
	if sb.Info().State == sandbox.StateRunning && !o.force {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s runs", sb.Name()),
			"stop it first (`sandbox-agent stop "+sb.Name()+"`), or use --force or `sandbox-agent down`")
	}
	if o.branch && sb.Spec().BranchOf() != "" {
		all, err := a.BranchStore()
		if err != nil {
			return err
		}
		m, err := a.Manager(false)
		if err != nil {
			return err
		}
		defer m.Close()
		head, err := a.Branches().Delete(ctx, m, all.Of(sb.Name(), sb.Spec().BranchOf()), app.Deletion{Force: o.force})
		return a.deleted(sb.Name(), head, o.json, err)
	}
	err := sb.Remove(ctx, sandbox.RemoveOptions{})
	if o.force && errors.Is(err, sandbox.ErrUnsaved) {
		err = sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	}
	if err != nil {
		return app.SandboxError(err)
	}
	a.Sandboxes().WarnOfRepositories(ctx, sb)
	return o.removed(a, sb.Name())
}

// forget removes the rest of a task whose record is damaged. An output outside of its
// folder stays, as only the record knew its place.
func forget(ctx context.Context, a *App, st *store.Store, id string) error {
	be, err := a.Engine()
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
	return st.Remove(&store.Record{TaskID: id})
}
