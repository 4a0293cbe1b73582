package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Replay shows what has happened so far in a run that is not collected, without
// touching its record: its own CLI may be writing it.
func (l *Launcher) Replay(ctx context.Context, rec *store.Record) error {
	host, err := own(rec.Dir)
	if err != nil {
		return err
	}
	show, rest := among(host, Judged(rec, l.show))
	defer rest()
	box, err := l.box(ctx, rec)
	if err != nil {
		return err
	}
	if box == nil {
		return Events(rec.Dir, show)
	}
	return l.Engine.Logs(ctx, box.ID, engine.LogOptions{Stdout: &recorder{show: show}})
}

// Watch follows a run to its end from any process. Whoever holds the task's
// lock records and collects; another one only watches, and takes over when the holder dies.
func (l *Launcher) Watch(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	seen := &watcher{show: l.show}
	w := *l
	w.Show = seen.event
	if err := seen.own(rec.Dir); err != nil {
		return nil, err
	}
	for {
		lock, err := l.Store.TryLock(rec.TaskID)
		if err == nil {
			res, err := w.take(ctx, rec, seen)
			lock.Unlock()
			return res, err
		}
		if !errors.Is(err, store.ErrLocked) {
			return nil, err
		}
		if fresh, err := l.Store.Load(rec.TaskID); err != nil || fresh.AttemptID != rec.AttemptID {
			return w.past(rec, fresh, seen, err)
		}
		if err := w.peek(ctx, rec); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(reconnectPause):
		}
	}
}

// take follows and collects as the holder of the lock.
func (l *Launcher) take(ctx context.Context, was *store.Record, seen *watcher) (*workorder.Result, error) {
	rec, err := l.Store.Load(was.TaskID)
	if err == nil {
		err = l.Store.Mend(rec)
	}
	if err != nil || rec.Collected || rec.AttemptID != was.AttemptID {
		return l.past(was, rec, seen, err)
	}
	// What a former holder recorded has not been seen by this watcher.
	if err := errors.Join(Events(rec.Dir, (&held{show: Judged(rec, l.show)}).event), seen.own(rec.Dir)); err != nil {
		return nil, err
	}
	box, err := l.box(ctx, rec)
	if err != nil {
		return nil, err
	}
	if box != nil && box.State != "created" {
		return l.Attach(ctx, rec)
	}
	return l.Collect(ctx, rec)
}

// past shows the rest of the attempt that was followed and has been collected; now
// is the task's record by now, in which another attempt may have begun.
func (l *Launcher) past(was, now *store.Record, seen *watcher, err error) (*workorder.Result, error) {
	if err == nil {
		now, err = now.At(was.Number())
	}
	if err != nil {
		return nil, err
	}
	end := &held{show: Judged(now, l.show)}
	if err := errors.Join(Events(now.Dir, end.event), seen.own(now.Dir)); err != nil {
		return nil, err
	}
	res, err := ReadResult(now)
	end.release(l, now, res)
	return res, err
}

// peek shows the box's events while another process holds the lock.
func (l *Launcher) peek(ctx context.Context, rec *store.Record) error {
	box, err := l.box(ctx, rec)
	if err != nil || box == nil {
		return err
	}
	err = engine.Follow(ctx, l.ours(rec), rec.TaskID, engine.LogOptions{Stdout: &recorder{show: (&held{show: Judged(rec, l.show)}).event}})
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrStuck) {
		return nil // collected and removed meanwhile, or about to be
	}
	return err
}

// watcher shows every event once, however often it is read.
type watcher struct {
	show func(workorder.Event)
	last int64
	host int // events of the host that were read
}

// own shows the host's own events that are new. Its ending is told by the result.
func (w *watcher) own(dir string) error {
	list, err := own(dir)
	for _, e := range list[min(w.host, len(list)):] {
		if e.Type != workorder.EventResult {
			w.event(e)
		}
	}
	w.host = len(list)
	return err
}

func (w *watcher) event(e workorder.Event) {
	if e.Seq > 0 {
		if e.Seq <= w.last {
			return
		}
		w.last = e.Seq
	}
	if w.show != nil {
		w.show(e)
	}
}

// Discard removes the boxes of a task, those kept of former attempts too. Live
// ones are only removed by force, and only by force those are left that are on other
// engines and may live: left says which. Such a task cannot be collected any more.
func (l *Launcher) Discard(ctx context.Context, rec *store.Record, force bool) (left []string, err error) {
	boxes, err := l.Engine.Boxes(ctx, map[string]string{workorder.LabelTask: rec.TaskID})
	if err != nil {
		return nil, err
	}
	if left, err = l.outOfReach(ctx, rec, boxes, force); err != nil {
		return nil, err
	}
	boxes = slices.DeleteFunc(boxes, func(b engine.Box) bool {
		id := b.Labels[workorder.LabelAttempt]
		return id != "" && !rec.Knows(id) // another state folder's
	})
	if slices.ContainsFunc(boxes, engine.Box.Live) {
		if !force {
			return nil, fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
		}
		if err := l.Store.NoteStop(rec.TaskID, store.StopKill); err != nil {
			return nil, err
		}
	}
	if !force && !rec.Collected && len(boxes) == 0 && l.Store.Held(rec.TaskID) {
		return nil, fmt.Errorf("task %s is being started: %w", rec.TaskID, ErrRunning)
	}
	var errs []error
	for _, b := range boxes {
		errs = append(errs, l.Engine.Remove(ctx, b.ID))
	}
	return left, errors.Join(errs...)
}

// outOfReach names the task's boxes on other engines. One that may live is only
// left by force.
func (l *Launcher) outOfReach(ctx context.Context, rec *store.Record, here []engine.Box, force bool) (left []string, err error) {
	info, err := l.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range rec.Attempts() {
		open := a.ID == rec.AttemptID && !rec.Collected || a.Unsure
		if !open && !a.Keep || !a.Elsewhere(info.Identity()) ||
			slices.ContainsFunc(here, func(b engine.Box) bool { return b.Labels[workorder.LabelAttempt] == a.ID }) {
			continue
		}
		if open && !force {
			return nil, elsewhere(rec, info)
		}
		left = append(left, a.Box+" on "+a.Engine)
	}
	return left, nil
}
