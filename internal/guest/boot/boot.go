// Package boot is the trusted, root part of a run: it prepares the box, brings
// up what the order asks for, hands over to the task's code as user sandbox,
// and lands the work however the run ends.
//
// Boot decides the order of things and what an ending means. How an engine
// starts, an agent runs or a branch is pushed is behind the interfaces of this
// file, whose implementations internal/guest/assembly brings together.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Box is one run inside the box.
type Box struct {
	Order    *workorder.Order
	Rec      *record.Recorder
	Log      *slog.Logger
	Network  Network
	Prover   Prover   // nil: the checks are run in the work tree only
	Forge    Forge    // nil: no pull request is asked for
	Answers  Answerer // nil: feedback is not answered
	Rebaser  Rebaser  // nil: the order is no rebase
	Engine   Engine
	Services Services
	Repo     Repository
	Task     Task
	Space    *workspace.Workspace
	// WatchDisk calls over when the task takes more of the disk than it may; nil: it may take all.
	WatchDisk func(ctx context.Context, over func(text string))
	// Signals delivers SIGTERM and SIGINT, and LongStop before them.
	Signals <-chan os.Signal
	// Burst is the time in which several signals count as one. 0: two seconds.
	Burst time.Duration

	lives     lives
	interrupt context.CancelCauseFunc // of lives.run

	// The steps tell each other the following.
	cloned    *Cloned  // nil: there is no clone
	ran       bool     // the task was begun: from here on there is work to land
	agentEnd  AgentEnd // zero: the agent did not run
	committed bool     // the agent's leftovers are committed
	left      error    // names those that cannot be
	validated bool     // the validate commands have run
	end       ending   // of the work
	over      bool     // the work is over, end is known
	landing   Landing
	unwatch   func() // stops looking after the lease; nil: nobody does

	rebasing *Rebasing        // nil: it did not begin
	before   *workorder.Proof // of the old head, where checks failed on the new one
	moved    bool             // the branch may be moved
	began    string           // the base before it was, and its branch
	beganOn  string

	grace  atomic.Int64              // of a stop that was announced, as a time.Duration
	landBy atomic.Pointer[time.Time] // when a run that is told to stop has to have landed; nil: it is not
}

// lives end what the steps do: run is the time limit and the first stop signal, land the time for landing and a second signal, after
// the first stop signal alone. A run whose work has landed keeps its status, whatever follows, and must not become a lost one for a forge
// that hangs. Its time limit is the agent's, and does not cost the pull request.
//
//nolint:containedctx // of one run, whose steps are methods
type lives struct{ run, land, after context.Context }

// LongStop is workorder.LongStopSignal.
const LongStop = syscall.SIGUSR1

// shutdown is the time that whoever stops the run leaves.
func (b *Box) shutdown() workorder.Shutdown {
	return workorder.ShutdownIn(time.Duration(b.grace.Load()))
}

// Causes of an early ending, carried by the run's context.
var (
	ErrInterrupted = errors.New("a stop signal arrived")
	ErrTimeout     = errors.New("the time limit was reached")
	// ErrDisk: the task took more of the disk than it may.
	ErrDisk = errors.New("the disk limit was reached")
	// ErrLease: what this box does from here on cannot be pushed.
	ErrLease = errors.New("another sandbox took the task over")
)

// timeoutCause is ErrTimeout with the limit. It is a deadline to everybody who
// does not know ErrTimeout.
type timeoutCause struct{ minutes float64 }

func (e timeoutCause) Error() string {
	return fmt.Sprintf("%v (timeout_minutes: %g)", ErrTimeout, e.minutes)
}

func (e timeoutCause) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// Run is the whole run; it returns the exit code of the container.
func (b *Box) Run(ctx context.Context) int {
	run, cancel := context.WithDeadlineCause(ctx, time.Now().Add(b.Order.Timeout()), timeoutCause{b.Order.TimeoutMinutes})
	defer cancel()
	run, interrupt := context.WithCancelCause(run)
	defer interrupt(nil)
	landing, hurry := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hurry(nil)
	after, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	b.lives = lives{run: run, land: landing, after: after}
	b.interrupt = interrupt
	go b.watchSignals(func(cause error) { leave(cause); interrupt(cause) }, hurry)
	if b.WatchDisk != nil {
		go b.WatchDisk(run, func(text string) { interrupt(fmt.Errorf("%w: %s", ErrDisk, text)) })
	}
	list := b.list()
	land{b}.worked(list.Work(run))
	list.Finish(ctx)

	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), workorder.EngineGrace)
	defer stop()
	list.Undo(undo)
	return workorder.ExitCode(b.end.Status, b.end.EndedBy)
}

// watchSignals turns the first signal into an interruption, after which the
// landing has its part of the shutdown, and a later SIGINT into its immediate end: a SIGTERM is sent twice by those
// who signal a process and its group. The agent's work so far is pushed while it is asked to stop.
func (b *Box) watchSignals(interrupt, hurry context.CancelCauseFunc) {
	s, ok := <-b.Signals
	for ok && s == LongStop { // PID 1 passes it on when it comes, and again before the stop
		b.grace.Store(int64(workorder.LongStop))
		s, ok = <-b.Signals
	}
	if !ok {
		return
	}
	first := time.Now()
	b.landsBy(first)
	b.Repo.Hurry(b.shutdown().Bundle)
	interrupt(fmt.Errorf("%w (%s)", ErrInterrupted, s))
	b.Repo.Flush()
	for {
		by := b.landsBy(first)
		select {
		case s := <-b.Signals:
			switch {
			case s == LongStop: // the kernel keeps no order of signals
				b.grace.Store(int64(workorder.LongStop))
				b.Repo.Hurry(b.shutdown().Bundle)
				continue
			case s != syscall.SIGINT || time.Since(first) < b.burst():
				continue
			}
			b.landBy.Store(&first) // at once
			hurry(errors.New("a second signal arrived"))
		case <-time.After(time.Until(by)):
			hurry(errors.New("the time for landing is used up"))
		}
		return
	}
}

// landsBy notes when a run that was told to stop has to have landed.
func (b *Box) landsBy(stopped time.Time) time.Time {
	by := stopped.Add(workorder.AgentGrace + b.shutdown().Land)
	b.landBy.Store(&by)
	return by
}

// burst is how long after the first signal another one is the same wish: some
// who stop a box send more than one.
func (b *Box) burst() time.Duration {
	if b.Burst > 0 {
		return b.Burst
	}
	return 2 * time.Second
}
