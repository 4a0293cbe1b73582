package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// follower records a box's events until the box ends, and stops the box on request.
type follower struct{ *Launcher }

const (
	// engineGone bounds the wait for an engine that stopped answering: its restart takes seconds.
	engineGone = 30 * time.Second
	// ReconnectPause is the pause between two connections: a stream that breaks at once must not cause a busy loop.
	ReconnectPause = 300 * time.Millisecond
)

// follow records the box's events until it ends, across broken streams and restarts of the engine. A missing box has ended.
func (f follower) follow(ctx context.Context, run *taskstore.Record, rec *outcome.Recorder) error {
	taskID := run.TaskID
	w := &runtime.Watcher{
		Find: func(ctx context.Context) (*runtime.Instance, error) { return f.Find(ctx, run) },
		Read: func(ctx context.Context, box *runtime.Instance) (bool, error) {
			rec.Restart()
			o := runtime.LogOptions{Since: rec.At, Stdout: rec}
			if !box.Running() {
				return true, errors.Join(f.Engine.Logs(ctx, box.ID, o), rec.Err)
			}
			if err := runtime.Follow(ctx, f.attemptBoxes(run), taskID, o); err != nil && rec.Err == nil {
				f.Log.Debug("the stream of the sandbox broke", "task", taskID, "error", err)
			}
			if rec.Err != nil {
				return false, fmt.Errorf("write the record of the run: %w", rec.Err)
			}
			return false, nil
		},
		Away: func(err error) {
			f.Log.Warn("engine stopped answering", "task", taskID, "error", err)
		},
		Patience: cmp.Or(f.EngineGone, engineGone), Pause: ReconnectPause, Now: f.now,
	}
	err := w.Watch(ctx)
	if errors.Is(err, runtime.ErrUnavailable) && ctx.Err() == nil {
		return exiterr.New(workorder.ExitBox, fmt.Errorf("follow task %s: %w", taskID, err),
			"when the engine is back, collect the result with: sandbox-agent result "+taskID)
	}
	return err
}

// stops turns signals and an exceeded timeout into stops of the box. It returns when followCtx ends.
func (f follower) stops(followCtx, userCtx context.Context, hard <-chan struct{}, rec *taskstore.Record) StopKind {
	late := time.NewTimer(max(0, rec.Deadline.Sub(f.now())))
	defer late.Stop()
	after := true // the steps after a landing get extra time
	kind := NotStopped
	soft := userCtx.Done()
	box := &runtime.Stopper{
		Find: func(ctx context.Context) (*runtime.Instance, error) { return f.Find(ctx, rec) },
		Stop: f.Engine.Stop,
		Failed: func(err error) {
			f.Log.Warn("stop the sandbox", "task", rec.TaskID, "error", err)
		},
	}
	defer box.Wait()
	// The process that started the box carries out a stop that was requested before.
	if grace, asked := f.stopRequest(rec.TaskID); asked {
		box.Request(followCtx, grace)
	}
	for {
		select {
		case <-followCtx.Done():
			return kind
		case <-soft:
			soft, kind = nil, StoppedSoftly
			f.emit(workorder.Event{Type: workorder.EventWarning, Text: stopping(userCtx)})
			box.Request(followCtx, runtime.StopTimeout)
		case <-late.C:
			switch {
			case kind == NotStopped && after && f.hasLanded(rec):
				after = false
				late.Reset(workorder.AfterLimit)
			case kind == NotStopped:
				kind, soft = Overdue, nil
				f.emit(workorder.Event{Type: workorder.EventWarning, Text: "timeout exceeded: the host stops the sandbox"})
				box.Request(followCtx, runtime.StopTimeout)
				late.Reset(killAfter)
			case kind == Overdue:
				f.Log.Warn("stop exceeded its time: killing the sandbox", "task", rec.TaskID)
				box.Request(followCtx, 0)
				late.Reset(killAfter)
			}
		case <-hard:
			kind, soft, hard = Killed, nil, nil
			f.emit(workorder.Event{Type: workorder.EventWarning, Text: "the sandbox is killed: unsaved work is lost"})
			box.Request(followCtx, 0)
		}
	}
}

// stopping describes the effect of a signal, and the user's next option.
func stopping(ctx context.Context) string {
	const what = "the agent is stopped and its work saved"
	by, told := errors.AsType[*signals.Stopped](context.Cause(ctx))
	switch {
	case !told:
		return "stopping: " + what
	case !by.Terminal:
		return fmt.Sprintf("%s: %s", by, what)
	case by.Signal == syscall.SIGINT:
		return "stopping: " + what + "; press Ctrl-C again after 2 s to kill the sandbox"
	}
	return fmt.Sprintf("%s: %s; press Ctrl-C after 2 s to kill the sandbox", by, what)
}

// killAfter is the time from the stop of an overdue box to its kill, and between kills: a healthy engine has killed the box by then.
const killAfter = 2 * runtime.StopTimeout

// hasLanded reports whether the box has reported the end of its landing.
func (f follower) hasLanded(rec *taskstore.Record) (landed bool) {
	if err := outcome.Events(rec.Dir, func(e workorder.Event) {
		landed = landed || e.Type == workorder.EventStepFinished && e.Step() == workorder.StepPush
	}); err != nil {
		f.Log.Warn("read the record of the run", "task", rec.TaskID, "error", err)
	}
	return landed
}

const stopPoll = 100 * time.Millisecond // while a box is being started

// ErrStopped ends a start because another command requested a stop.
var ErrStopped = errors.New("stopped on request (sandbox-agent stop)")

// unlessStopped runs do before the box exists, and cancels it when a stop of the task is requested. If the box was started
// nevertheless, stops stops it.
func (f follower) unlessStopped(ctx context.Context, taskID string, do func(context.Context) error) error {
	starting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	look := func() {
		if _, asked := f.stopRequest(taskID); asked {
			cancel()
		}
	}
	look() // at a request from before, ahead of do
	wg.Go(func() {
		for range proc.Ticks(starting.Done(), stopPoll) {
			look()
		}
	})
	err := do(starting)
	if err != nil && starting.Err() != nil && ctx.Err() == nil {
		return exiterr.New(workorder.ExitInterrupted, fmt.Errorf("%w before its sandbox was started", ErrStopped), "")
	}
	return err
}
