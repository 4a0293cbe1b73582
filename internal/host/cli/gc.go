package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/upkeep"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

type gcOptions struct{ dryRun, images, cache, force, json bool }

func newGcCmd(a *App) *cobra.Command {
	o := &gcOptions{}
	cmd := &cobra.Command{
		Use: "gc", Short: "Collect finished tasks and clean up", Args: noArgs,
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and do nothing")
	cmd.Flags().BoolVar(&o.images, "images", false, "remove outdated images")
	cmd.Flags().BoolVar(&o.force, "force", false, "forget sandboxes whose container was removed")
	cmd.Flags().BoolVar(&o.cache, "cache", false, "remove the layer cache")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list of what was done")
	return cmd
}

func (o *gcOptions) do(ctx context.Context, a *App) error {
	st, err := a.store()
	if err != nil {
		return err
	}
	be, err := a.open()
	if err != nil {
		return err
	}
	sweep := a.tasks(nil).Sweep(be, st)
	sweep.DryRun = o.dryRun
	sweep.Volumes, _ = be.Engine.(runtime.Volumes)
	if o.images {
		sweep.Images = be.Images
	}
	if o.cache {
		sweep.Cache = a.CacheVolume()
	}
	done, err := sweep.Run(ctx)
	if ctx.Err() == nil {
		more, rerr := o.roots(ctx, st.Dir())
		done, err = append(done, more...), errors.Join(err, rerr)
	}
	if a.OpenSandboxes != nil && ctx.Err() == nil {
		more, serr := o.sandboxes(ctx, a)
		done, err = append(done, more...), errors.Join(err, serr)
	}
	if done != nil {
		err = errors.Join(o.report(a, done), err)
	}
	if done != nil && ctx.Err() != nil {
		return tasks.ErrLeft
	}
	return err
}

// sandboxes collects those without a task.
func (o *gcOptions) sandboxes(ctx context.Context, a *App) ([]upkeep.Action, error) {
	m, err := a.sandboxes()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all, err := m.GC(ctx, sandbox.GCOptions{DryRun: o.dryRun, Force: o.force})
	actions := make([]upkeep.Action, 0, len(all))
	for _, c := range all {
		actions = append(actions, upkeep.Action{Do: upkeep.Do(c.Action), Target: c.Target, NeedsForce: c.NeedsForce})
	}
	return actions, sandboxError(err)
}

// roots removes folders with programs that no artifact has a link to.
func (o *gcOptions) roots(ctx context.Context, state string) (actions []upkeep.Action, err error) {
	unused, err := artifact.Unused(state)
	for _, root := range unused {
		if !o.dryRun {
			if rerr := artifact.RemoveUnused(ctx, root); rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
		}
		actions = append(actions, upkeep.Action{Do: removeRoot, Target: root})
	}
	return actions, err
}

// removeRoot is what gc does to a folder with programs.
const removeRoot upkeep.Do = "remove root folder"

func (o *gcOptions) report(a *App, done []upkeep.Action) error {
	if o.json {
		return a.json(done)
	}
	would := ""
	if o.dryRun {
		would = "would "
	}
	for _, act := range done {
		switch {
		case act.NeedsForce:
			fmt.Fprintf(a.Stdout, "would %s %s: only with --force\n", act.Do, act.Target)
		case act.Error == "":
			fmt.Fprintf(a.Stdout, "%s%s %s\n", would, act.Do, act.Target)
		}
	}
	if len(done) == 0 {
		fmt.Fprintln(a.Stdout, "nothing to do")
	}
	return nil
}
