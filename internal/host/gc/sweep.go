package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// doTime bounds one action. Collecting, the longest one, has its own bound; then comes removing gigabytes on a slow disk.
const doTime = launch.CollectTimeout + time.Minute

// Engine is the part of an engine that a Collector needs.
type Engine interface {
	Instances(ctx context.Context, labels map[string]string) ([]runtime.Instance, error)
	Info(ctx context.Context) (runtime.Info, error)
	Remove(ctx context.Context, id string) error
}

// Images manages the images that this program built.
type Images interface {
	List(ctx context.Context) ([]provision.BuiltImage, error)
	// Remove removes a tag, and the image if nothing else uses it.
	Remove(ctx context.Context, tag string) error
}

// Collector removes leftovers once.
type Collector struct {
	Store   *taskstore.Store
	Engine  Engine
	Images  Images          // nil skips images
	Volumes runtime.Volumes // nil if the engine has none
	Cache   string          // the volume of the layer cache; "" keeps it
	Collect func(context.Context, *taskstore.Record) error
	DryRun  bool

	engine string // identity
	done   []runtime.GCAction
	errs   []error
}

// OwnInstances lists a state directory's boxes on the engine, including those of older versions.
func OwnInstances(ctx context.Context, e Engine, st *taskstore.Store, labels map[string]string) (boxes []runtime.Instance, err error) {
	own, err := st.Owner(false)
	if err != nil {
		return nil, err
	}
	for _, label := range own.Labels() {
		with := map[string]string{workorder.LabelOwner: label}
		maps.Copy(with, labels)
		list, err := e.Instances(ctx, with)
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, list...)
	}
	return boxes, nil
}

// Run removes the leftovers. A nil list means that it looked at nothing.
func (c *Collector) Run(ctx context.Context) ([]runtime.GCAction, error) {
	boxes, err := OwnInstances(ctx, c.Engine, c.Store, nil)
	if err != nil {
		return nil, err
	}
	info, err := c.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	c.engine, c.done = info.Identity(), []runtime.GCAction{}
	byTask := map[string][]runtime.Instance{}
	for _, b := range boxes {
		byTask[b.Labels[workorder.LabelTask]] = append(byTask[b.Labels[workorder.LabelTask]], b)
	}
	records, unread := c.Store.List()
	for _, r := range records {
		// A box of an attempt that its task does not know: the task was deleted by hand and created again. A record names its
		// box before the engine has it, and the boxes were listed first.
		known := slices.DeleteFunc(byTask[r.TaskID], func(b runtime.Instance) bool {
			forgotten := !r.Knows(b.Labels[workorder.LabelAttempt])
			if forgotten {
				c.removeOrphans(ctx, b)
			}
			return forgotten
		})
		c.task(ctx, r, known)
		delete(byTask, r.TaskID)
	}
	for id, boxes := range byTask {
		boxes = slices.DeleteFunc(boxes, func(b runtime.Instance) bool {
			if b.Waits() && !companion.Kept(b) {
				c.do(ctx, runtime.GCRemoveBox, b.Name, func(ctx context.Context) error {
					return companion.Standbys{Engine: c.Engine, Dir: c.Store.Dir()}.Remove(ctx, b)
				})
			}
			return b.Waits()
		})
		// The boxes of an unreadable record may hold the only copy of its work.
		if _, err := c.Store.Load(id); !errors.Is(err, taskstore.ErrNotFound) {
			continue
		}
		for _, b := range boxes {
			c.removeOrphans(ctx, b)
		}
	}
	for _, dir := range (companion.Standbys{Dir: c.Store.Dir()}).DeadTemps() {
		c.do(ctx, runtime.GCRemoveFiles, dir, func(context.Context) error { return os.RemoveAll(dir) })
	}
	for _, id := range c.Store.Unbegun(time.Now().Add(-runtime.NeverStarted)) {
		c.do(ctx, runtime.GCForgetTask, id, func(context.Context) error { return c.Store.RemoveUnbegun(id) })
	}
	if c.Volumes != nil {
		c.volumes(ctx)
	}
	if c.Images != nil {
		c.images(ctx)
	}
	if c.Volumes != nil && c.Cache != "" {
		c.cache(ctx)
	}
	return c.done, errors.Join(append(c.errs, unread)...)
}

// do carries out an action, or only reports it in a dry run.
func (c *Collector) do(ctx context.Context, do runtime.GCKind, target string, fn func(context.Context) error) {
	if ctx.Err() != nil {
		return // the next run does the rest
	}
	act := runtime.GCAction{Action: do, Target: target}
	if !c.DryRun {
		ctx, cancel := context.WithTimeoutCause(ctx, doTime, fmt.Errorf("not done within %s", doTime))
		defer cancel()
		if err := fn(ctx); err != nil {
			act.Error = err.Error()
			c.failed(fmt.Errorf("%s %s: %w", do, target, err))
		}
	}
	c.done = append(c.done, act)
}

func (c *Collector) failed(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// task handles one task. A command that follows or continues it holds its lock.
func (c *Collector) task(ctx context.Context, r *taskstore.Record, boxes []runtime.Instance) {
	t := Task{Record: r, Boxes: boxes, Engine: c.engine, Companion: r.Companion.Alive()}
	if t.idle() {
		return
	}
	lock, err := c.Store.TryLock(r.TaskID)
	if err != nil {
		if !errors.Is(err, taskstore.ErrLocked) && !errors.Is(err, taskstore.ErrNotFound) {
			c.failed(err)
		}
		return
	}
	defer lock.Unlock()
	if t.Record, err = c.Store.Load(r.TaskID); err != nil {
		c.failed(err)
		return
	}
	r, t.Companion = t.Record, t.Record.Companion.Alive()
	for _, todo := range forTask(t) {
		switch todo.Kind {
		case runtime.GCCollect:
			c.do(ctx, runtime.GCCollect, r.TaskID, func(ctx context.Context) error { return c.Collect(ctx, r) })
		case runtime.GCMend:
			c.do(ctx, runtime.GCMend, r.TaskID, func(context.Context) error { return c.Store.FinishMove(r) })
		case runtime.GCRemoveBox:
			c.removeBox(ctx, todo.Box)
		case runtime.GCEndCompanion:
			// Collecting also ends it. A task that could not be collected may need it.
			if p := r.Companion; r.Collected && p.Alive() {
				c.do(ctx, runtime.GCEndCompanion, r.TaskID, func(context.Context) error { return end(p) })
			}
		}
	}
}

func end(p *statedir.Process) error {
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (c *Collector) removeBox(ctx context.Context, b runtime.Instance) {
	c.do(ctx, runtime.GCRemoveBox, b.Name, func(ctx context.Context) error { return c.Engine.Remove(ctx, b.ID) })
}

// removeOrphans removes a box of this user without a record.
func (c *Collector) removeOrphans(ctx context.Context, b runtime.Instance) {
	if b.Leftover(time.Now()) {
		c.removeBox(ctx, b)
	}
}

func (c *Collector) volumes(ctx context.Context) {
	own, err := c.Store.Owner(false)
	c.failed(err)
	for _, label := range own.Labels() {
		all, err := c.Volumes.Volumes(ctx, map[string]string{workorder.LabelOwner: label})
		c.failed(err)
		for _, v := range all {
			c.do(ctx, runtime.GCRemoveVolume, v.Name, func(ctx context.Context) error { return c.Volumes.RemoveVolume(ctx, v.Name) })
		}
	}
}

// cache removes the volume that all boxes of the engine share.
func (c *Collector) cache(ctx context.Context) {
	boxes, err := c.Engine.Instances(ctx, map[string]string{workorder.LabelTask: ""})
	if err != nil {
		c.failed(err)
		return
	}
	if i := slices.IndexFunc(boxes, runtime.Instance.Running); i >= 0 {
		c.failed(fmt.Errorf("remove the layer cache: %s is running and uses it: stop it, or wait for its end", boxes[i].Name))
		return
	}
	if !c.DryRun {
		err = c.Volumes.RemoveVolume(ctx, c.Cache)
	}
	if !errors.Is(err, runtime.ErrNotFound) {
		c.do(ctx, runtime.GCRemoveVolume, c.Cache, func(context.Context) error { return err })
	}
}

func (c *Collector) images(ctx context.Context) {
	list, err := c.Images.List(ctx)
	c.failed(err)
	for _, tag := range oldTags(list) {
		c.do(ctx, runtime.GCRemoveImage, tag, func(ctx context.Context) error { return c.Images.Remove(ctx, tag) })
	}
}
