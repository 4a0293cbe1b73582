package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rmOptions struct{ force, branch, json bool }

// NewCmdRm makes the command.
func NewCmdRm(f *cmdutil.Factory) *cobra.Command {
	o := &rmOptions{}
	cmd := &cobra.Command{
		Use: "rm TASK | SANDBOX...", Short: "Remove tasks and sandboxes",
		ValidArgsFunction: f.CompleteEither(true),
		Long: `Removes the record and the output directory of a task. A task that still runs,
is on another engine or has a damaged record is removed only with --force. Its
branch and its refs stay on the remote. --branch deletes them, too: the branch
agent/ID and all of refs/sandbox-agent/ID. An open pull request of the branch,
and commits that exist nowhere else, need --force, or an answer at a terminal.

Removes standalone sandboxes as 'down' does: their files are saved first, if they
have a branch. One that runs is removed only with --force, which also discards
what cannot be saved. With --branch their branches go, too, as with 'delete'.`,
		Example: "  sandbox-agent rm T-A1B2C3D4\n  sandbox-agent rm --force A1B2\n  sandbox-agent rm --branch A1B2 dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, id := range args {
				errs = append(errs, o.do(cmd.Context(), id, f))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Args = cmdutil.Each(cmdutil.SomeTasks, app.CheckTask)
	cmd.Flags().BoolVarP(&o.force, "force", "f", false, "also remove what runs, is on another engine or exists nowhere else")
	cmd.Flags().BoolVar(&o.branch, "branch", false, "also delete branches, and a task's refs on the remote")
	cmd.Flags().BoolVar(&o.json, "json", false, "print each removed one as JSON")
	return cmd
}

func (o *rmOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	sb, done, err := f.Sandboxes().Either(ctx, id)
	if err != nil {
		return o.missing(ctx, id, f, err)
	}
	if sb != nil {
		defer done()
		return o.sandbox(ctx, sb, f)
	}
	r, err := f.Tasks().Remove(ctx, id, app.Removal{Force: o.force, Branch: o.branch})
	if err != nil {
		return err
	}
	return taskRemoved(f, r, o.json)
}

// taskRemoved reports the removal of a task.
func taskRemoved(f *cmdutil.Factory, r app.RemovedTask, asJSON bool) error {
	for _, name := range slices.Sorted(maps.Keys(r.Refs)) {
		if !asJSON {
			f.Say(text.Clean(fmt.Sprintf("deleted %s (was %.10s)", name, r.Refs[name])))
		}
	}
	return f.Done(asJSON, r, "%s", text.Clean(r.TaskID))
}

// removed reports a removal.
func (o *rmOptions) removed(f *cmdutil.Factory, name string) error {
	return f.Done(o.json, map[string]string{"removed": name}, "%s", name)
}

// missing removes what is left of a sandbox that cannot be opened: by force its record, with --branch its branch.
func (o *rmOptions) missing(ctx context.Context, name string, f *cmdutil.Factory, err error) error {
	if !o.force && !o.branch || !sandbox.ValidName(name) {
		return err
	}
	m, merr := f.Manager(false)
	if merr != nil {
		return merr
	}
	defer m.Close()
	if o.branch {
		head, err := f.Branches().DeleteNamed(ctx, m, name, app.Deletion{Force: o.force})
		return f.Deleted(name, head, o.json, err)
	}
	if ferr := app.Forget(ctx, m, name, err); ferr != nil {
		return f.UnknownName(ctx, name, ferr)
	}
	return o.removed(f, name)
}

// sandbox removes a standalone sandbox.
func (o *rmOptions) sandbox(ctx context.Context, sb *sandbox.Sandbox, f *cmdutil.Factory) error {
	if sb.Info().State == sandbox.StateRunning && !o.force {
		return exiterr.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s runs", sb.Name()),
			"stop it first (`sandbox-agent stop "+sb.Name()+"`), or use --force or `sandbox-agent down`")
	}
	if o.branch && sb.Spec().BranchOf() != "" {
		all, err := f.BranchStore()
		if err != nil {
			return err
		}
		m, err := f.Manager(false)
		if err != nil {
			return err
		}
		defer m.Close()
		head, err := f.Branches().Delete(ctx, m, all.Of(sb.Name(), sb.Spec().BranchOf()), app.Deletion{Force: o.force})
		return f.Deleted(sb.Name(), head, o.json, err)
	}
	err := sb.Remove(ctx, sandbox.RemoveOptions{})
	if o.force && errors.Is(err, sandbox.ErrUnsaved) {
		err = sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	}
	if err != nil {
		return app.SandboxError(err)
	}
	f.Sandboxes().WarnOfRepositories(ctx, sb)
	return o.removed(f, sb.Name())
}
