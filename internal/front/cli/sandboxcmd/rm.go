package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
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

func (o *rmOptions) do(ctx context.Context, name string, f *cmdutil.Factory) error {
	r, err := f.Works().Remove(ctx, name, app.Removal{Force: o.force, Branch: o.branch})
	switch {
	case err != nil:
		return err
	case r.Branch:
		return f.Deleted(name, r.Head, o.json, nil)
	case r.Task == nil:
		return f.Done(o.json, map[string]string{"removed": name}, "%s", name)
	}
	for _, ref := range slices.Sorted(maps.Keys(r.Task.Refs)) {
		if !o.json {
			f.Say(fmt.Sprintf("deleted %s (was %.10s)", ref, r.Task.Refs[ref]))
		}
	}
	return f.Done(o.json, r.Task, "%s", text.Clean(r.Task.TaskID))
}
