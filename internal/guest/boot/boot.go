// Package boot is the trusted part of an attempt: as root it prepares the box, runs the task as user sandbox and lands the work.
package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Runner is one run inside the box.
type Runner struct {
	Order      *workorder.Order
	Rec        *record.Recorder
	Log        *slog.Logger
	Network    PolicyEnforcer
	Prover     Prover           // if nil, the checks run in the work tree only
	Forge      Forge            // nil if no pull request is wanted
	Answers    Answerer         // nil if no feedback is to be answered
	Rebaser    Rebaser          // nil unless the order is a rebase
	Standalone StandaloneServer // nil if the order has a task
	// SetupCache is nil if files of setup are not cached.
	SetupCache SetupCache
	Engine     Engine
	Services   Services
	Repo       Repository
	Task       Task
	Space      *rootgit.Workspace
	Packages   Packages
	Tools      Tools
	// Booted means that Standby ran before the order arrived.
	Booted bool
	// WatchDisk calls over when the task exceeds its disk limit. It is nil if there is no limit.
	WatchDisk func(ctx context.Context, over func(text string))
	// Signals delivers SIGTERM and SIGINT, and initd.LongStop before them.
	Signals <-chan os.Signal
	// Burst is the time after the first signal in which further ones count as the same request. Zero means two seconds.
	Burst time.Duration

	contexts  phaseContexts
	interrupt context.CancelCauseFunc // cancels lives.run

	phases

	grace  atomic.Int64              // of an announced stop, as a time.Duration
	landBy atomic.Pointer[time.Time] // deadline for landing in a run that is being stopped; nil if it is not
}

// phaseContexts are the contexts of the steps. run ends with the time limit and the first stop signal; land with the
// time for landing and a second signal; after with the first stop signal alone, so that a hanging forge does not lose a
// landed run.
type phaseContexts struct{ run, land, after context.Context }

// shutdown returns the time that is left for a stop.
func (r *Runner) shutdown() workorder.Shutdown {
	return workorder.ShutdownIn(time.Duration(r.grace.Load()))
}

// Causes of an early ending, carried by the run's context.
var (
	errStopSignal = errors.New("received a stop signal")
	// errDiskLimit means that the task exceeded its disk limit.
	errDiskLimit = errors.New("the disk limit was reached")
	// errLeaseLost means that this box can push nothing more.
	errLeaseLost = errors.New("another sandbox has taken over the task")
)

// timeoutCause is the end of the task's time, a context.DeadlineExceeded.
type timeoutCause struct{ minutes float64 }

func (e timeoutCause) Error() string {
	return fmt.Sprintf("the time limit was reached (timeout_minutes: %g)", e.minutes)
}

func (e timeoutCause) Unwrap() error { return context.DeadlineExceeded }

// Run executes the whole run and returns the container's exit code.
func (r *Runner) Run(ctx context.Context) int {
	if r.Standalone != nil {
		return r.runStandalone(ctx)
	}
	run, cancel := context.WithDeadlineCause(ctx, time.Now().Add(r.Order.Timeout()), timeoutCause{r.Order.TimeoutMinutes})
	defer cancel()
	run, interrupt := context.WithCancelCause(run)
	defer interrupt(nil)
	landing, hurry := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hurry(nil)
	after, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	r.contexts = phaseContexts{run: run, land: landing, after: after}
	r.interrupt = interrupt
	go r.watchSignals(func(cause error) { leave(cause); interrupt(cause) }, hurry)
	if r.WatchDisk != nil {
		go r.WatchDisk(run, func(text string) { interrupt(fmt.Errorf("%w: %s", errDiskLimit, text)) })
	}
	list := r.list()
	r.land.worked(list.Work(run))
	list.Finish(ctx)

	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), workorder.EngineGrace)
	defer stop()
	list.Undo(undo)
	return workorder.ExitCode(r.land.end.Status, r.land.end.EndedBy)
}

// watchSignals interrupts the run at the first signal; landing then has its part of the shutdown time. A later SIGINT
// ends landing at once; a second SIGTERM does not, because some programs send it twice.
func (r *Runner) watchSignals(interrupt, hurry context.CancelCauseFunc) {
	s, ok := <-r.Signals
	for ok && s == initd.LongStop { // PID 1 passes it on when it arrives, and again before the stop
		r.grace.Store(int64(workorder.LongStop))
		s, ok = <-r.Signals
	}
	if !ok {
		return
	}
	first := time.Now()
	r.landsBy(first)
	r.Repo.AnnounceStop(r.shutdown().Bundle)
	interrupt(fmt.Errorf("%w (%s)", errStopSignal, s))
	r.Repo.SaveNow()
	for {
		by := r.landsBy(first)
		select {
		case s := <-r.Signals:
			switch {
			case s == initd.LongStop: // the kernel does not keep the order of signals
				r.grace.Store(int64(workorder.LongStop))
				r.Repo.AnnounceStop(r.shutdown().Bundle)
				continue
			case s != syscall.SIGINT || time.Since(first) < cmp.Or(r.Burst, 2*time.Second):
				continue
			}
			r.landBy.Store(&first) // no landing time is left
			hurry(errors.New("a second signal arrived"))
		case <-time.After(time.Until(by)):
			hurry(errors.New("the time for landing ran out"))
		}
		return
	}
}

// landsBy returns the deadline for landing in a run that is being stopped, and stores it.
func (r *Runner) landsBy(stopped time.Time) time.Time {
	by := stopped.Add(workorder.AgentGrace + r.shutdown().Land)
	r.landBy.Store(&by)
	return by
}
