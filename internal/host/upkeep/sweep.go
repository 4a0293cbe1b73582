package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// doTime bounds one action, for an engine that starts it and never ends it. The longest action is collecting, which
// has a bound of its own; the next one is removing gigabytes on a slow disk.
const doTime = launch.CollectTimeout + time.Minute

// Engine is the part of an engine that a sweep needs.
type Engine interface {
	Boxes(ctx context.Context, labels map[string]string) ([]runtime.Box, error)
	Info(ctx context.Context) (runtime.Info, error)
	Remove(ctx context.Context, id string) error
}

// Images manages the images that this program built.
type Images interface {
	List(ctx context.Context) ([]provision.BuiltImage, error)
	// Remove removes a tag, and the image if that was its last one and nothing uses it.
	Remove(ctx context.Context, tag string) error
}

// Sweep is one round of upkeep.
type Sweep struct {
	Store   *store.Store
	Engine  Engine
	Images  Images          // if nil, images are left alone
	Volumes runtime.Volumes // nil if the engine has none
	Cache   string          // the volume of the layer cache, to be removed too; if empty it is left alone
	Collect func(context.Context, *store.Record) error
	DryRun  bool

	engine string // its identity
	done   []runtime.GCAction
	errs   []error
}

// OwnBoxes lists a state folder's boxes on the engine, also those of older versions.
func OwnBoxes(ctx context.Context, e Engine, st *store.Store, labels map[string]string) (boxes []runtime.Box, err error) {
	own, err := st.Owner(false)
	if err != nil {
		return nil, err
	}
	for _, label := range own.Labels() {
		with := map[string]string{workorder.LabelOwner: label}
		maps.Copy(with, labels)
		list, err := e.Boxes(ctx, with)
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, list...)
	}
	return boxes, nil
}

// Run carries out the sweep. If it returns no list, it has not looked at anything.
func (s *Sweep) Run(ctx context.Context) ([]runtime.GCAction, error) {
	boxes, err := OwnBoxes(ctx, s.Engine, s.Store, nil)
	if err != nil {
		return nil, err
	}
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	s.engine, s.done = info.Identity(), []runtime.GCAction{}
	byTask := map[string][]runtime.Box{}
	for _, b := range boxes {
		byTask[b.Labels[workorder.LabelTask]] = append(byTask[b.Labels[workorder.LabelTask]], b)
	}
	records, unread := s.Store.List()
	for _, r := range records {
		// Boxes of an attempt that its task does not know: the task was deleted by hand and begun again.
		// The boxes were listed before the records, and a record knows its box before the engine does.
		known := slices.DeleteFunc(byTask[r.TaskID], func(b runtime.Box) bool {
			forgotten := !r.Knows(b.Labels[workorder.LabelAttempt])
			if forgotten {
				s.stray(ctx, b)
			}
			return forgotten
		})
		s.task(ctx, r, known)
		delete(byTask, r.TaskID)
	}
	for id, boxes := range byTask {
		// If a task's record cannot be read, its boxes may hold the only copy of its work.
		if _, err := s.Store.Load(id); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		for _, b := range boxes {
			s.stray(ctx, b)
		}
	}
	if s.Volumes != nil {
		s.volumes(ctx)
	}
	if s.Images != nil {
		s.images(ctx)
	}
	if s.Volumes != nil && s.Cache != "" {
		s.cache(ctx)
	}
	return s.done, errors.Join(append(s.errs, unread)...)
}

// do carries out an action, or only names it in a dry run.
func (s *Sweep) do(ctx context.Context, do runtime.GCKind, target string, fn func(context.Context) error) {
	if ctx.Err() != nil {
		return // the user has interrupted: the next sweep does the rest
	}
	act := runtime.GCAction{Action: do, Target: target}
	if !s.DryRun {
		ctx, cancel := context.WithTimeoutCause(ctx, doTime, fmt.Errorf("not done within %s", doTime))
		defer cancel()
		if err := fn(ctx); err != nil {
			act.Error = err.Error()
			s.failed(fmt.Errorf("%s %s: %w", do, target, err))
		}
	}
	s.done = append(s.done, act)
}

func (s *Sweep) failed(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// task cares for one task. A command that follows it, or is about to continue it, holds its lock.
func (s *Sweep) task(ctx context.Context, r *store.Record, boxes []runtime.Box) {
	t := Task{Record: r, Boxes: boxes, Engine: s.engine, Companion: r.Companion.Alive()}
	if t.idle() {
		return
	}
	lock, err := s.Store.TryLock(r.TaskID)
	if err != nil {
		if !errors.Is(err, store.ErrLocked) && !errors.Is(err, store.ErrNotFound) {
			s.failed(err)
		}
		return
	}
	defer lock.Unlock()
	if t.Record, err = s.Store.Load(r.TaskID); err != nil {
		s.failed(err)
		return
	}
	r, t.Companion = t.Record, t.Record.Companion.Alive()
	for _, todo := range forTask(t) {
		switch todo.Do {
		case runtime.GCCollect:
			s.do(ctx, runtime.GCCollect, r.TaskID, func(ctx context.Context) error { return s.Collect(ctx, r) })
		case runtime.GCMend:
			s.do(ctx, runtime.GCMend, r.TaskID, func(context.Context) error { return s.Store.Mend(r) })
		case runtime.GCRemoveBox:
			s.removeBox(ctx, todo.Box)
		case runtime.GCEndCompanion:
			// Collecting ends it, too; a task that could not be collected may need it.
			if p := r.Companion; r.Collected && p.Alive() {
				s.do(ctx, runtime.GCEndCompanion, r.TaskID, func(context.Context) error { return end(p) })
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

func (s *Sweep) removeBox(ctx context.Context, b runtime.Box) {
	s.do(ctx, runtime.GCRemoveBox, b.Name, func(ctx context.Context) error { return s.Engine.Remove(ctx, b.ID) })
}

// stray removes a box of this user that has no record.
func (s *Sweep) stray(ctx context.Context, b runtime.Box) {
	if b.Leftover(time.Now()) {
		s.removeBox(ctx, b)
	}
}

func (s *Sweep) volumes(ctx context.Context) {
	own, err := s.Store.Owner(false)
	s.failed(err)
	for _, label := range own.Labels() {
		all, err := s.Volumes.Volumes(ctx, map[string]string{workorder.LabelOwner: label})
		s.failed(err)
		for _, v := range all {
			s.do(ctx, runtime.GCRemoveVolume, v.Name, func(ctx context.Context) error { return s.Volumes.RemoveVolume(ctx, v.Name) })
		}
	}
}

// cache removes the volume that all boxes of the engine share, of every owner.
func (s *Sweep) cache(ctx context.Context) {
	boxes, err := s.Engine.Boxes(ctx, map[string]string{workorder.LabelTask: ""})
	if err != nil {
		s.failed(err)
		return
	}
	if i := slices.IndexFunc(boxes, runtime.Box.Live); i >= 0 {
		s.failed(fmt.Errorf("remove the layer cache: %s runs and uses it: stop it, or wait for its end", boxes[i].Name))
		return
	}
	if !s.DryRun {
		err = s.Volumes.RemoveVolume(ctx, s.Cache)
	}
	if !errors.Is(err, runtime.ErrNotFound) {
		s.do(ctx, runtime.GCRemoveVolume, s.Cache, func(context.Context) error { return err })
	}
}

func (s *Sweep) images(ctx context.Context) {
	list, err := s.Images.List(ctx)
	s.failed(err)
	for _, tag := range oldTags(list) {
		s.do(ctx, runtime.GCRemoveImage, tag, func(ctx context.Context) error { return s.Images.Remove(ctx, tag) })
	}
}
