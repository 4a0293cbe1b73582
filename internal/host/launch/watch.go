package launch

import (
	"context"
	"errors"
	"fmt"
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
	box, err := l.box(ctx, rec.TaskID)
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
			res, err := w.take(ctx, rec.TaskID, seen)
			lock.Unlock()
			return res, err
		}
		if !errors.Is(err, store.ErrLocked) {
			return nil, err
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
func (l *Launcher) take(ctx context.Context, id string, seen *watcher) (*workorder.Result, error) {
	rec, err := l.Store.Load(id)
	if err != nil {
		return nil, err
	}
	// What a former holder recorded has not been seen by this watcher.
	end := &held{show: Judged(rec, l.show)}
	if err := errors.Join(Events(rec.Dir, end.event), seen.own(rec.Dir)); err != nil {
		return nil, err
	}
	if rec.Collected {
		res, err := ReadResult(rec)
		end.release(l, rec, res)
		return res, err
	}
	box, err := l.box(ctx, id)
	if err != nil {
		return nil, err
	}
	if box != nil && box.State != "created" {
		return l.Attach(ctx, rec)
	}
	return l.Collect(ctx, rec)
}

// peek shows the box's events while another process holds the lock.
func (l *Launcher) peek(ctx context.Context, rec *store.Record) error {
	box, err := l.box(ctx, rec.TaskID)
	if err != nil || box == nil {
		return err
	}
	err = engine.Follow(ctx, l.Engine, rec.TaskID, engine.LogOptions{Stdout: &recorder{show: (&held{show: Judged(rec, l.show)}).event}})
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

// Discard removes the box of a task. A live one is only removed by force.
func (l *Launcher) Discard(ctx context.Context, rec *store.Record, force bool) error {
	box, err := l.box(ctx, rec.TaskID)
	if err != nil || box == nil {
		return err
	}
	if box.Live() && !force {
		return fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
	}
	if box.Live() {
		if err := l.Store.NoteStop(rec.TaskID, store.StopKill); err != nil {
			return err
		}
	}
	return l.Engine.Remove(ctx, box.ID)
}
