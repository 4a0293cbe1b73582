package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
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
	after := true // what comes after a landing has its time still
	kind := notStopped
	soft := userCtx.Done()
	done := make(chan struct{}, 4) // at most four stops are ever asked for
	pending := 0
	// The box takes a second signal for impatience: it gets one from here, and a further one
	// only when that did not reach it.
	var gentle sync.Mutex
	stop := func(grace time.Duration) {
		pending++
		go func() {
			defer func() { done <- struct{}{} }()
			if grace > 0 {
				gentle.Lock()
				defer gentle.Unlock()
			}
			if err := l.stopBox(followCtx, rec, grace); err != nil && followCtx.Err() == nil {
				l.Log.Warn("stop the box", "task", rec.TaskID, "error", err)
			}
		}()
	}
	// Who asked before there was a box relies on whoever started it.
	if grace, asked := l.noted(rec.TaskID); asked {
		stop(grace)
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
			l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: "stopping: the agent is ended and its work saved; Ctrl-C again, after 2 s, kills the box at once"})
			stop(engine.StopTimeout)
		case <-late.C:
			if kind == notStopped && after && l.hasLanded(rec) {
				after = false
				late.Reset(workorder.AfterLimit)
				continue
			}
			if kind == notStopped {
				kind, soft = overdue, nil
				l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: "the run outlived its timeout and is stopped from outside"})
				stop(engine.StopTimeout)
			}
		case <-hard:
			kind = killed
			l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: "the box is killed: what was not saved yet is lost"})
			stop(0)
		}
	}
	<-followCtx.Done()
	for range pending {
		<-done
	}
	return kind
}

// hasLanded reports whether the box has said that its landing is over.
func (l *Launcher) hasLanded(rec *store.Record) (landed bool) {
	if err := Events(rec.Dir, func(e workorder.Event) {
		landed = landed || e.Type == workorder.EventStepFinished && e.Step() == workorder.StepPush
	}); err != nil {
		l.Log.Warn("read the record of the run", "task", rec.TaskID, "error", err)
	}
	return landed
}

func (l *Launcher) stopBox(ctx context.Context, rec *store.Record, grace time.Duration) error {
	box, err := l.box(ctx, rec)
	if err != nil || box == nil {
		return err
	}
	return l.Engine.Stop(ctx, box.ID, grace)
}

// Stop ends a run gracefully within grace, or at once with a grace of 0. Whoever
// collects it finds out that its end was asked for, and whoever is just starting its box does
// not start it, or stops it. False: there is no box to stop yet, ask again.
func (l *Launcher) Stop(ctx context.Context, rec *store.Record, grace time.Duration) (bool, error) {
	kind := store.StopSoft
	if grace == 0 {
		kind = store.StopKill
	}
	box, err := l.box(ctx, rec)
	if err != nil {
		return false, err
	}
	live := box != nil && box.Live()
	if !live && !l.Store.Held(rec.TaskID) {
		return true, nil // it has ended, and nobody asked for that
	}
	if l.Store.Stopped(rec.TaskID) != kind {
		if err := l.Store.NoteStop(rec.TaskID, kind); err != nil && !live {
			return false, err
		} else if err != nil {
			l.Log.Warn("note that the task is stopped", "task", rec.TaskID, "error", err)
		}
	}
	if !live {
		return false, nil
	}
	return true, l.Engine.Stop(ctx, box.ID, grace)
}

// noted is the stop that was asked for beside this process, with the grace that it
// leaves: the one who asked ends a shorter one.
func (l *Launcher) noted(taskID string) (grace time.Duration, asked bool) {
	switch l.Store.Stopped(taskID) {
	case store.StopKill:
		return 0, true
	case store.StopSoft:
		return engine.StopTimeout, true
	}
	return 0, false
}

// stopPoll is how often a command that is starting a box looks whether it still shall.
const stopPoll = 100 * time.Millisecond

// errStopped ends a start that another command asked to end.
var errStopped = errors.New("stopped on request (sandbox-agent stop)")

// unlessStopped does what comes before the box lives, and gives it up when the
// task's end is asked for. A box that was started all the same is stopped by stopper.
func (l *Launcher) unlessStopped(ctx context.Context, taskID string, do func(context.Context) error) error {
	starting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	look := func() {
		if _, asked := l.noted(taskID); asked {
			cancel()
		}
	}
	look() // what was asked before must not depend on who is faster
	wg.Go(func() {
		tick := time.NewTicker(stopPoll)
		defer tick.Stop()
		for {
			select {
			case <-starting.Done():
				return
			case <-tick.C:
				look()
			}
		}
	})
	err := do(starting)
	if err != nil && starting.Err() != nil && ctx.Err() == nil {
		return fault.New(workorder.ExitInterrupted, fmt.Errorf("%w before its box was started", errStopped), "")
	}
	return err
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
	var who workorder.Reasons
	switch {
	case kind == stoppedSoftly:
		who = workorder.Because(workorder.ReasonByUser, "you interrupted it")
	case l.asked(taskID, kind) == stoppedSoftly:
		who = workorder.Because(workorder.ReasonOnRequest, "stopped on request (sandbox-agent stop)")
	default:
		return
	}
	res.Reasons = append(who, res.Reasons.Without(workorder.ReasonSignal)...)
}
