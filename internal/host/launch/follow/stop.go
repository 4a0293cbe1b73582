package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Stops turns the user's signals, and a run that exceeds its own timeout, into stops of
// the box. It returns when followCtx ends.
func (f *Follower) Stops(followCtx, userCtx context.Context, hard <-chan struct{}, rec *store.Record) attempt.StopKind {
	late := time.NewTimer(max(0, rec.Deadline.Sub(f.Host.Time())))
	defer late.Stop()
	after := true // the steps after a landing still have their time
	kind := attempt.NotStopped
	soft := userCtx.Done()
	box := &runtime.Stopper{
		Find: func(ctx context.Context) (*runtime.Box, error) { return f.Host.Find(ctx, rec) },
		Stop: f.Host.Engine.Stop,
		Failed: func(err error) {
			f.Host.Log.Warn("stop the sandbox", "task", rec.TaskID, "error", err)
		},
	}
	defer box.Wait()
	// A stop that was requested before there was a box is carried out by the process that
	// started the box.
	if grace, asked := f.Host.Noted(rec.TaskID); asked {
		box.Ask(followCtx, grace)
	}
	for {
		select {
		case <-followCtx.Done():
			return kind
		case <-soft:
			soft, kind = nil, attempt.StoppedSoftly
			f.Host.Emit(workorder.Event{Time: f.Host.Time(), Type: workorder.EventWarning, Text: stopping(userCtx)})
			box.Ask(followCtx, runtime.StopTimeout)
		case <-late.C:
			switch {
			case kind == attempt.NotStopped && after && f.hasLanded(rec):
				after = false
				late.Reset(workorder.AfterLimit)
			case kind == attempt.NotStopped:
				kind, soft = attempt.Overdue, nil
				f.Host.Emit(workorder.Event{Time: f.Host.Time(), Type: workorder.EventWarning, Text: "the run outlived its timeout and is stopped from outside"})
				box.Ask(followCtx, runtime.StopTimeout)
				late.Reset(killAfter)
			case kind == attempt.Overdue:
				f.Host.Log.Warn("the sandbox outlived its stop and is killed", "task", rec.TaskID)
				box.Ask(followCtx, 0)
				late.Reset(killAfter)
			}
		case <-hard:
			kind, soft, hard = attempt.Killed, nil, nil
			f.Host.Emit(workorder.Event{Time: f.Host.Time(), Type: workorder.EventWarning, Text: "the sandbox is killed: what was not saved yet is lost"})
			box.Ask(followCtx, 0)
		}
	}
}

// stopping says what a signal does, and what else the user can do.
func stopping(ctx context.Context) string {
	const what = "the agent is ended and its work saved"
	by, told := errors.AsType[*signals.Stopped](context.Cause(ctx))
	switch {
	case !told:
		return "stopping: " + what
	case !by.Terminal:
		return fmt.Sprintf("%s: %s", by, what)
	case by.Signal == syscall.SIGINT:
		return "stopping: " + what + "; Ctrl-C again, after 2 s, kills the sandbox at once"
	}
	return fmt.Sprintf("%s: %s; Ctrl-C, after 2 s, kills the sandbox at once", by, what)
}

// killAfter is the time from the stop of an overdue box to its kill, and between kills: an engine that carries a stop out has killed
// the box by then.
const killAfter = 2 * runtime.StopTimeout

// hasLanded reports whether the box has said that its landing is over.
func (f *Follower) hasLanded(rec *store.Record) (landed bool) {
	if err := journal.Events(rec.Dir, func(e workorder.Event) {
		landed = landed || e.Type == workorder.EventStepFinished && e.Step() == workorder.StepPush
	}); err != nil {
		f.Host.Log.Warn("read the record of the run", "task", rec.TaskID, "error", err)
	}
	return landed
}

// stopPoll is how often a command that is starting a box looks for a request to stop.
const stopPoll = 100 * time.Millisecond

// ErrStopped ends a start that another command asked to end.
var ErrStopped = errors.New("stopped on request (sandbox-agent stop)")

// UnlessStopped runs the work before the box lives, and cancels it when a stop of the
// task is requested. A box that was started nevertheless is stopped by Stops.
func (f *Follower) UnlessStopped(ctx context.Context, taskID string, do func(context.Context) error) error {
	starting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	look := func() {
		if _, asked := f.Host.Noted(taskID); asked {
			cancel()
		}
	}
	look() // a request from before must be seen first, whichever goroutine is faster
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
		return fault.New(workorder.ExitInterrupted, fmt.Errorf("%w before its sandbox was started", ErrStopped), "")
	}
	return err
}
