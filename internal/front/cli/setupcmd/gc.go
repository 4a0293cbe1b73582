package setupcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

type gcOptions struct {
	app.GarbageOptions
	json bool
}

// NewCmdGC makes the command.
func NewCmdGC(f *cmdutil.Factory) *cobra.Command {
	o := &gcOptions{}
	cmd := &cobra.Command{
		Use: "gc", Short: "Collect finished tasks and clean up", Args: cmdutil.NoArgs,
		Long: `Collects the results of tasks whose sandbox has ended, and removes these
sandboxes with their volumes. Running sandboxes, tasks that another command
follows, and sandboxes on other engines stay.

For standalone sandboxes of this state directory it removes what killed programs
left: images of forks, volumes without a container, programs of removed
artifacts. A sandbox whose container is missing is listed, and forgotten with
--force; its next use would recreate it. Snapshots stay.

With --images it removes images of other versions of this program, and outdated
images of projects, unless they have another tag or a container. With --cache it
removes the layer cache of the engine, unless a sandbox runs.`,
		Example: "  sandbox-agent gc --dry-run\n  sandbox-agent gc --images --cache",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print what would be done, and do nothing")
	cmd.Flags().BoolVar(&o.Images, "images", false, "remove outdated images")
	cmd.Flags().BoolVar(&o.Force, "force", false, "forget sandboxes whose container was removed")
	cmd.Flags().BoolVar(&o.Cache, "cache", false, "remove the layer cache")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list of what was done")
	return cmd
}

func (o *gcOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	done, err := f.Machine().CollectGarbage(ctx, o.GarbageOptions)
	if done != nil {
		err = errors.Join(o.report(f, done), err)
	}
	if done != nil && ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	return err
}

func (o *gcOptions) report(f *cmdutil.Factory, done []sandbox.GCAction) error {
	if o.json {
		return f.JSON(done)
	}
	would := ""
	if o.DryRun {
		would = "would "
	}
	for _, act := range done {
		switch {
		case act.NeedsForce:
			fmt.Fprintf(f.Stdout, "would %s %s: only with --force\n", act.Action, act.Target)
		case act.Error == "":
			fmt.Fprintf(f.Stdout, "%s%s %s\n", would, act.Action, act.Target)
		}
	}
	if len(done) == 0 {
		fmt.Fprintln(f.Stdout, "nothing to do")
	}
	return nil
}
