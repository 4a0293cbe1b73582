package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// neverStarted is the age at which a box that was created and not started has
// certainly lost its CLI.
const neverStarted = 5 * time.Minute

// gcTime bounds one thing that gc does, for an engine that takes it up and never ends it: removing gigabytes on a slow disk is the
// longest but collecting, which has a bound of its own.
const gcTime = launch.CollectTimeout + time.Minute

type gcOptions struct{ dryRun, images, cache, json bool }

func newGcCmd(a *App) *cobra.Command {
	o := &gcOptions{}
	cmd := &cobra.Command{
		Use: "gc", Short: "Collect finished boxes and remove what dead commands left", Args: noArgs,
		Long: `Gc collects the results of boxes that have ended, removes them with their volumes,
ends companions whose box is gone, and with --images removes images that
other versions of this program built and tagged: none that has another tag or a container.
A box that runs, a task that another command follows, and one whose box is on another
engine are left alone.

With --cache it removes the layer cache too, the volume ` + launch.CacheVolume + ` that all
boxes of the engine share (or the one that SANDBOX_AGENT_CACHE_VOLUME names): the next runs pull their images again. It is refused while a box runs.`,
		Example: "  sandbox-agent gc --dry-run\n  sandbox-agent gc --images --cache",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runGc(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&o.images, "images", false, "also remove images built by other versions, unless they have another tag or a container")
	cmd.Flags().BoolVar(&o.cache, "cache", false, "also remove the layer cache that boxes share")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list of what was done")
	return cmd
}

// gcAction is one thing that was (or would be) done.
type gcAction struct {
	Action string `json:"action"`
	Target string `json:"target"`
	Error  string `json:"error,omitempty"`
}

// collector carries out one gc.
type collector struct {
	a       *App
	o       *gcOptions
	st      *store.Store
	be      *Backend
	l       *launch.Launcher
	engine  string // its identity
	actions []gcAction
	errs    []error
}

func (a *App) runGc(ctx context.Context, o *gcOptions) error {
	st, err := a.store()
	if err != nil {
		return err
	}
	be, err := a.open()
	if err != nil {
		return err
	}
	c := &collector{a: a, o: o, st: st, be: be, l: a.launcher(be, st, nil), actions: []gcAction{}}
	boxes, err := ownBoxes(ctx, be.Engine, st, nil)
	if err != nil {
		return err
	}
	info, err := be.Engine.Info(ctx)
	if err != nil {
		return err
	}
	c.engine = info.Identity()
	byTask := map[string][]engine.Box{}
	for _, b := range boxes {
		byTask[b.Labels[workorder.LabelTask]] = append(byTask[b.Labels[workorder.LabelTask]], b)
	}
	records, unread := st.List()
	for _, r := range records {
		// Of an attempt that its task does not know any more: the task was deleted by hand
		// and begun again. The boxes were listed before the records, which know of a box first.
		known := slices.DeleteFunc(byTask[r.TaskID], func(b engine.Box) bool {
			forgotten := !r.Knows(b.Labels[workorder.LabelAttempt])
			if forgotten {
				c.stray(ctx, b)
			}
			return forgotten
		})
		c.task(ctx, r, known)
		delete(byTask, r.TaskID)
	}
	for id, boxes := range byTask {
		// The boxes of a task whose record cannot be read may hold the only copy of its work.
		if _, err := st.Load(id); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		for _, b := range boxes {
			c.stray(ctx, b)
		}
	}
	c.volumes(ctx)
	if o.images {
		c.images(ctx)
	}
	if o.cache {
		c.cache(ctx)
	}
	c.errs = append(c.errs, unread)
	if err := c.report(); ctx.Err() == nil {
		return err
	}
	return &ending{exitLeft}
}

// do carries out an action unless only its name is asked for.
func (c *collector) do(ctx context.Context, action, target string, fn func(context.Context) error) {
	if ctx.Err() != nil {
		return // the user has left: what is not done is for the next gc
	}
	act := gcAction{Action: action, Target: target}
	if !c.o.dryRun {
		ctx, cancel := context.WithTimeoutCause(ctx, gcTime, fmt.Errorf("not done within %s", gcTime))
		defer cancel()
		if err := fn(ctx); err != nil {
			act.Error = err.Error()
			c.errs = append(c.errs, fmt.Errorf("%s %s: %w", action, target, err))
		}
	}
	c.actions = append(c.actions, act)
}

// task collects a finished task of ours and removes boxes that nobody wanted to
// keep. Whoever follows it, or is about to go on with it, holds its lock.
func (c *collector) task(ctx context.Context, r *store.Record, boxes []engine.Box) {
	if r.Collected && len(boxes) == 0 && r.Moving == 0 && !r.Companion.Alive() || slices.ContainsFunc(boxes, engine.Box.Live) {
		return
	}
	lock, err := c.st.TryLock(r.TaskID)
	if err != nil {
		if !errors.Is(err, store.ErrLocked) && !errors.Is(err, store.ErrNotFound) {
			c.errs = append(c.errs, err)
		}
		return
	}
	defer lock.Unlock()
	fresh, err := c.st.Load(r.TaskID)
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	own := func(b engine.Box) bool { return b.Labels[workorder.LabelAttempt] == fresh.AttemptID }
	if !fresh.Collected && fresh.Elsewhere(c.engine) && !slices.ContainsFunc(boxes, own) {
		return
	}
	// The box goes with its collection, or not at all.
	spared := func(engine.Box) bool { return false }
	switch {
	case !fresh.Collected:
		spared = own
		c.do(ctx, "collect", r.TaskID, func(ctx context.Context) error {
			_, err := c.l.Collect(ctx, fresh)
			return err
		})
	case fresh.Moving != 0:
		c.do(ctx, "mend", r.TaskID, func(context.Context) error { return c.st.Mend(fresh) })
	}
	for _, b := range boxes {
		i := slices.IndexFunc(fresh.Attempts(), func(t store.Attempt) bool { return t.ID == b.Labels[workorder.LabelAttempt] })
		if i >= 0 && !fresh.Attempts()[i].Keep && !spared(b) {
			c.do(ctx, "remove box", b.Name, func(ctx context.Context) error { return c.be.Engine.Remove(ctx, b.ID) })
		}
	}
	if p := fresh.Companion; fresh.Collected && p.Alive() {
		c.do(ctx, "end companion", r.TaskID, func(context.Context) error {
			if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return nil
		})
	}
}

// stray removes an ended box of ours that has no record any more.
func (c *collector) stray(ctx context.Context, b engine.Box) {
	if b.Live() || b.State == "created" && time.Since(b.Created) < neverStarted {
		return
	}
	c.do(ctx, "remove box", b.Name, func(ctx context.Context) error { return c.be.Engine.Remove(ctx, b.ID) })
}

func (c *collector) volumes(ctx context.Context) {
	if c.be.Leftovers == nil {
		return
	}
	own, err := c.st.Owner(false)
	if err != nil {
		c.errs = append(c.errs, err)
	}
	for _, label := range own.Labels() {
		names, err := c.be.Leftovers.Volumes(ctx, workorder.LabelOwner+"="+label)
		if err != nil {
			c.errs = append(c.errs, err)
		}
		for _, n := range names {
			c.do(ctx, "remove volume", n, func(ctx context.Context) error { return c.be.Leftovers.RemoveVolume(ctx, n) })
		}
	}
}

// cache removes the volume that all boxes of the engine share, whoever owns them.
func (c *collector) cache(ctx context.Context) {
	if c.be.Leftovers == nil {
		return
	}
	boxes, err := c.be.Engine.Boxes(ctx, map[string]string{workorder.LabelTask: ""})
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	for _, b := range boxes {
		if b.Live() {
			c.errs = append(c.errs, fmt.Errorf("remove the layer cache: %s runs and uses it: stop it, or wait for its end", b.Name))
			return
		}
	}
	if !c.o.dryRun {
		err = c.be.Leftovers.RemoveVolume(ctx, c.l.CacheVolume)
	}
	if !errors.Is(err, engine.ErrNotFound) {
		c.do(ctx, "remove volume", c.l.CacheVolume, func(context.Context) error { return err })
	}
}

func (c *collector) images(ctx context.Context) {
	list, err := c.be.Images.List(ctx)
	if err != nil {
		c.errs = append(c.errs, err)
	}
	for _, img := range list {
		// Labels are inherited: of an image that somebody made of ours only the tags tell that it is not ours.
		if img.Current || !img.Own || img.Used {
			continue
		}
		for _, tag := range img.Tags {
			c.do(ctx, "remove image", tag, func(ctx context.Context) error { return c.be.Images.Remove(ctx, tag) })
		}
	}
}

func (c *collector) report() error {
	if c.o.json {
		if err := c.a.json(c.actions); err != nil {
			return err
		}
		return errors.Join(c.errs...)
	}
	would := ""
	if c.o.dryRun {
		would = "would "
	}
	for _, act := range c.actions {
		if act.Error == "" {
			fmt.Fprintf(c.a.Stdout, "%s%s %s\n", would, act.Action, act.Target)
		}
	}
	if len(c.actions) == 0 {
		fmt.Fprintln(c.a.Stdout, "nothing to do")
	}
	return errors.Join(c.errs...)
}
