package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Replay shows the events so far of a run that is not collected. It does not write the record, which the run's own process
// may be writing.
func (l *Launcher) Replay(ctx context.Context, rec *taskstore.Record) error {
	host, err := outcome.HostEvents(rec.Dir)
	if err != nil {
		return err
	}
	show, rest := outcome.Interleave(host, outcome.SanitizeEvents(rec, l.emit))
	defer rest()
	box, err := l.Find(ctx, rec)
	if err != nil {
		return err
	}
	if box == nil {
		return outcome.Events(rec.Dir, show)
	}
	return l.Engine.Logs(ctx, box.ID, runtime.LogOptions{Stdout: outcome.NewDisplayRecorder(show)})
}

// Watch follows a run to its end from any process. The holder of the task's lock records and collects; other processes only
// show events, and one of them takes over when the holder dies.
func (l *Launcher) Watch(ctx context.Context, rec *taskstore.Record) (*workorder.Result, error) {
	seen := &watcher{show: l.emit}
	w := *l
	w.Show = seen.event
	if err := seen.own(rec.Dir); err != nil {
		return nil, err
	}
	var ended time.Time // when the box was first seen to have ended
	for {
		lock, err := l.Store.TryLock(rec.TaskID)
		if err == nil {
			res, err := w.take(ctx, rec, seen)
			lock.Unlock()
			return res, err
		}
		if !errors.Is(err, taskstore.ErrLocked) {
			return nil, err
		}
		if fresh, err := l.Store.Load(rec.TaskID); err != nil || fresh.AttemptID != rec.AttemptID {
			return w.past(rec, fresh, seen, err)
		}
		live, err := w.peek(ctx, rec)
		if err != nil {
			return nil, err
		}
		switch now := l.now(); {
		case live:
			ended = time.Time{}
		case ended.IsZero():
			ended = now
		case now.Sub(ended) > holderLimit:
			return nil, exiterr.New(workorder.ExitGeneral, fmt.Errorf("follow task %s: its sandbox has ended, and the process that holds the task "+
				"has not collected the result for %s", rec.TaskID, holderLimit),
				"end that process, then collect the result with: sandbox-agent result "+rec.TaskID)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(ReconnectPause):
		}
	}
}

// holderLimit bounds the wait for the holder of a task, who collects the result of an ended box or starts one: building an
// image takes longest.
const holderLimit = 40 * time.Minute

// take follows and collects as the holder of the lock.
func (l *Launcher) take(ctx context.Context, was *taskstore.Record, seen *watcher) (*workorder.Result, error) {
	rec, err := l.Store.Load(was.TaskID)
	if err == nil {
		err = l.Store.FinishMove(rec)
	}
	if err != nil || rec.Collected || rec.AttemptID != was.AttemptID {
		return l.past(was, rec, seen, err)
	}
	// These events were recorded by a previous holder.
	if err := errors.Join(outcome.Events(rec.Dir, (&outcome.ResultBuffer{Show: outcome.SanitizeEvents(rec, l.emit)}).Event),
		seen.own(rec.Dir)); err != nil {
		return nil, err
	}
	box, err := l.Find(ctx, rec)
	if err != nil {
		return nil, err
	}
	if box != nil && box.State != "created" {
		return l.Attach(ctx, rec)
	}
	return l.Collect(ctx, rec)
}

// past shows the rest of the followed attempt, which is collected. now is the task's current record, maybe of a later attempt.
func (l *Launcher) past(was, now *taskstore.Record, seen *watcher, err error) (*workorder.Result, error) {
	if err == nil {
		now, err = now.At(was.Number())
	}
	if err != nil {
		return nil, err
	}
	end := &outcome.ResultBuffer{Show: outcome.SanitizeEvents(now, l.emit)}
	if err := errors.Join(outcome.Events(now.Dir, end.Event), seen.own(now.Dir)); err != nil {
		return nil, err
	}
	res, err := outcome.ReadResult(now)
	end.Release(l.emit, l.now, now, res)
	return res, err
}

// peek shows the box's events while another process holds the lock. It reports whether the box runs.
func (l *Launcher) peek(ctx context.Context, rec *taskstore.Record) (live bool, err error) {
	box, err := l.Find(ctx, rec)
	if err != nil || box == nil {
		return false, err
	}
	err = runtime.Follow(ctx, l.attemptBoxes(rec), rec.TaskID,
		runtime.LogOptions{Stdout: outcome.NewDisplayRecorder((&outcome.ResultBuffer{Show: outcome.SanitizeEvents(rec, l.emit)}).Event)})
	if errors.Is(err, runtime.ErrNotFound) || errors.Is(err, runtime.ErrLogStreamOpen) {
		err = nil // it was, or is about to be, collected and removed
	}
	return box.Running(), err
}

// watcher shows every event once, even if the record is read several times.
type watcher struct {
	show func(workorder.Event)
	last int64
	host int // events of the host read so far
}

// own shows new events of the host, except the final one: the result has it.
func (w *watcher) own(dir string) error {
	list, err := outcome.HostEvents(dir)
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
