package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/start"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/upkeep"
)

type gcOptions struct{ dryRun, images, cache, json bool }

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

With --cache it removes the layer cache too, the volume ` + start.CacheVolume + ` that all
sandboxes of the engine share (or the one that SANDBOX_AGENT_CACHE_VOLUME names): the next runs pull their images again. It is refused while a sandbox runs.`,
		Example: "  sandbox-agent gc --dry-run\n  sandbox-agent gc --images --cache",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&o.images, "images", false, "also remove images built by other versions, and those made for projects that are too old to be used, unless they have another tag or a container")
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
	if done != nil {
		err = errors.Join(o.report(a, done), err)
	}
	if done != nil && ctx.Err() != nil {
		return tasks.ErrLeft
	}
	return err
}

func (o *gcOptions) report(a *App, done []upkeep.Action) error {
	if o.json {
		return a.json(done)
	}
	would := ""
	if o.dryRun {
		would = "would "
	}
	for _, act := range done {
		if act.Error == "" {
			fmt.Fprintf(a.Stdout, "%s%s %s\n", would, act.Do, act.Target)
		}
	}
	if len(done) == 0 {
		fmt.Fprintln(a.Stdout, "nothing to do")
	}
	return nil
}
