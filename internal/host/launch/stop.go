package launch

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type stopKind int

const (
	notStopped stopKind = iota
	stoppedSoftly
	killed
	overdue
	foundEnded // nobody watched it end
)

// stopper turns the user's signals, and a run that outlives its own timeout,
// into stops of the box. It returns when followCtx ends.
func (l *Launcher) stopper(followCtx, userCtx context.Context, hard <-chan struct{}, rec *store.Record) stopKind {
	late := time.NewTimer(max(0, rec.Deadline.Sub(l.now())))
	defer late.Stop()
	kind := notStopped
	soft := userCtx.Done()
	done := make(chan struct{}, 2) // at most two stops are ever asked for
	pending := 0
	stop := func(grace time.Duration) {
		pending++
		go func() {
			defer func() { done <- struct{}{} }()
			if err := l.stopBox(followCtx, rec, grace); err != nil && followCtx.Err() == nil {
				l.Log.Warn("stop the box", "task", rec.TaskID, "error", err)
			}
		}()
	}
	for kind != killed {
		select {
		case <-followCtx.Done():
			for range pending {
				<-done
			}
			return kind
		case <-soft:
			soft, kind = nil, stoppedSoftly
			l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: "stopping: the agent is ended and its work saved; interrupt again to kill the box at once"})
			stop(engine.StopTimeout)
		case <-late.C:
			if kind == notStopped {
				kind, soft = overdue, nil
				l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: "the run outlived its timeout and is stopped from outside"})
				stop(engine.StopTimeout)
			}
		case <-hard:
			kind = killed
			stop(0)
		}
	}
	<-followCtx.Done()
	for range pending {
		<-done
	}
	return kind
}

func (l *Launcher) stopBox(ctx context.Context, rec *store.Record, grace time.Duration) error {
	box, err := l.box(ctx, rec)
	if err != nil || box == nil {
		return err
	}
	return l.Engine.Stop(ctx, box.ID, grace)
}

// Stop ends a run gracefully within grace, or at once with a grace of 0. Whoever
// collects it finds out that its end was asked for.
func (l *Launcher) Stop(ctx context.Context, rec *store.Record, grace time.Duration) error {
	kind := store.StopSoft
	if grace == 0 {
		kind = store.StopKill
	}
	box, err := l.box(ctx, rec)
	if err != nil || box == nil || !box.Live() {
		return err
	}
	if err := l.Store.NoteStop(rec.TaskID, kind); err != nil {
		l.Log.Warn("note that the task is stopped", "task", rec.TaskID, "error", err)
	}
	return l.Engine.Stop(ctx, box.ID, grace)
}

// asked is the kind of an end that this process did not watch or cause.
func (l *Launcher) asked(taskID string, kind stopKind) stopKind {
	if kind == stoppedSoftly || kind == killed {
		return kind
	}
	switch l.Store.Stopped(taskID) {
	case store.StopKill:
		return killed
	case store.StopSoft:
		return stoppedSoftly
	}
	return kind
}

// tellStop says of a run that landed after a stop who wanted it: the box knows
// only of a signal.
func (l *Launcher) tellStop(res *workorder.Result, taskID string, kind stopKind) {
	if res.Status != workorder.StatusInterrupted {
		return
	}
	who := ""
	switch {
	case kind == stoppedSoftly:
		who = "you interrupted it"
	case l.asked(taskID, kind) == stoppedSoftly:
		who = "stopped on request (sandbox-agent stop)"
	default:
		return
	}
	// What follows the first clause is about the work.
	if _, rest, more := strings.Cut(res.Reason, "; "); more {
		who += "; " + rest
	}
	res.Reason = who
}
