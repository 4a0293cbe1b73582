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
		Use: "gc", Short: "Collect finished sandboxes and remove what dead commands left", Args: noArgs,
		Long: `Gc collects the results of sandboxes that have ended, removes them with their volumes,
ends companions whose sandbox is gone, and with --images removes images that
other versions of this program built and tagged, and those with packages and tools
for projects that no task would use any more: none that has another tag or a container.
A sandbox that runs, a task that another command follows, and one whose sandbox is on another
engine are left alone.

It removes the folders with programs to which no artifact of ` + "`sandbox-agent artifact build`" + ` has a link any more.

Of sandboxes without a task it removes what dead programs have left of those that were made with this state
folder, images of forks and volumes of containers that are gone; it puts right what is kept of the others. One whose container somebody has
removed would be made anew by its next use: it is named, and with --force forgotten. Snapshots stay:
` + "`sandbox-agent snapshot rm`" + `.

With --cache it removes the layer cache too, the volume ` + runtime.CacheVolume + ` that all
sandboxes of the engine share (or the one that SANDBOX_AGENT_CACHE_VOLUME names): the next runs pull their images again. It is refused while a sandbox runs.`,
		Example: "  sandbox-agent gc --dry-run\n  sandbox-agent gc --images --cache",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&o.images, "images", false, "also remove images built by other versions, and those made for projects that are too old to be used, unless they have another tag or a container")
	cmd.Flags().BoolVar(&o.force, "force", false, "also forget sandboxes without a task whose container somebody has removed")
	cmd.Flags().BoolVar(&o.cache, "cache", false, "also remove the layer cache that sandboxes share")
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
	sweep := &upkeep.Sweep{Store: st, Engine: be.Engine, DryRun: o.dryRun, Collect: (&boxes{a: a, st: st, be: be}).Collect}
	sweep.Volumes, _ = be.Engine.(runtime.Volumes)
	if o.images {
		sweep.Images = be.Images
	}
	if o.cache {
		sweep.Cache = a.cacheVolume()
	}
	done, err := sweep.Run(ctx)
	if ctx.Err() == nil {
		more, rerr := o.roots(ctx, st.Dir())
		done, err = append(done, more...), errors.Join(err, rerr)
	}
	if a.Sandboxes != nil && ctx.Err() == nil {
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
	all, err := m.Collect(ctx, sandbox.CollectOptions{DryRun: o.dryRun, Force: o.force})
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
