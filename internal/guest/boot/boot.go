// Package boot is the trusted, root part of a run: it prepares the box, brings
// up what the order asks for, hands over to the task's code as user sandbox,
// and lands the work however the run ends.
//
// Boot decides the order of things and what an ending means. How an engine
// starts, an agent runs or a branch is pushed is behind the interfaces of this
// file, whose implementations cmd/entrypoint brings together.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// commitTime bounds the commit after the agent: a hundred thousand new files take
// a minute, and what an agent can hang must not cost the validation its time.
const commitTime = 3 * time.Minute

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

	cloned    *Cloned // nil: there is no clone
	committed bool    // the agent's leftovers are committed
	left      error   // names those that cannot be

	rebasing *Rebasing // nil: it did not begin
	moved    bool      // the branch may be moved
	began    string    // the base before it was, and its branch
	beganOn  string

	grace  atomic.Int64              // of a stop that was announced, as a time.Duration
	landBy atomic.Pointer[time.Time] // when a run that is told to stop has to have landed; nil: it is not
}

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
	ErrLease = errors.New("another box took the task over")
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
	start := time.Now()
	steps := b.steps()
	names := make([]workorder.StepName, 0, len(steps)+4)
	for _, s := range steps {
		names = append(names, s.name)
	}
	names = append(names, workorder.StepAgent, workorder.StepValidate)
	if b.Order.Repair.MaxAttempts > 0 && b.Rebaser == nil {
		names = append(names, workorder.StepRepair)
	}
	if b.Prover != nil && b.Rebaser != nil {
		names = append(names, workorder.StepProof) // what is worse is not pushed
	}
	names = append(names, workorder.StepPush)
	if b.Prover != nil && b.Rebaser == nil {
		names = append(names, workorder.StepProof)
	}
	if b.Order.Mode == workorder.ModeRevise && b.Answers != nil {
		names = append(names, workorder.StepAnswers)
	}
	if b.Forge != nil {
		names = append(names, workorder.StepPR)
	}
	if b.Rebaser != nil {
		names = append(names, workorder.StepRangeDiff)
	}
	b.Rec.Declare(names...)

	run, cancel := context.WithDeadlineCause(ctx, start.Add(b.Order.Timeout()), timeoutCause{b.Order.TimeoutMinutes})
	defer cancel()
	run, interrupt := context.WithCancelCause(run)
	defer interrupt(nil)
	land, hurry := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hurry(nil)
	after, leave := b.afterLanding(ctx)
	defer leave(nil)
	go b.watchSignals(func(cause error) { leave(cause); interrupt(cause) }, hurry)

	if b.WatchDisk != nil {
		go b.WatchDisk(run, func(text string) { interrupt(fmt.Errorf("%w: %s", ErrDisk, text)) })
	}
	end := b.work(run, interrupt, steps)
	landing := b.land(land, run, &end)
	b.rebaseLanded(&landing)
	b.prove(run, landing)
	b.survey(after, landing)
	b.evidence(after, landing)
	b.answer(after, &end, landing)
	b.pullRequest(after, &end, landing)
	b.rangeDiff(after)
	code := b.finish(end, landing)
	b.keepResult(after, &end)
	b.release(after, b.vouched(landing.Head))

	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), workorder.EngineGrace)
	defer stop()
	undoSteps(undo, steps)
	return code
}

// watchSignals turns the first signal into an interruption, after which the
// landing has its part of the shutdown, and a later SIGINT into its immediate end: a SIGTERM is sent twice by those
// who signal a process and its group. What the agent has done so far is pushed while it is asked to stop.
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

func (b *Box) work(ctx context.Context, interrupt context.CancelCauseFunc, steps []step) ending {
	if err := runSteps(ctx, b.Rec, steps); err != nil {
		return b.bootFailed(ctx, err)
	}
	if ctx.Err() != nil {
		return cutShort(ctx)
	}
	if err := b.Engine.Mark(ctx); err != nil {
		b.Rec.Warn("the project's own containers cannot be told from the agent's: " + err.Error())
	}
	if b.Rebaser != nil {
		return b.workRebase(ctx, interrupt)
	}
	if over := b.prepare(); over != nil {
		return *over
	}
	if b.Order.Mode == workorder.ModePlan {
		return b.plan(ctx)
	}
	if b.cloned != nil {
		stop := b.watchLease(interrupt)
		defer stop()
		b.Repo.Save()
	}
	e := ending{ran: true}
	agent := b.agent(ctx)
	if ctx.Err() == nil {
		b.keepAgentsWork(ctx)
	}
	switch {
	case len(b.Order.Validate) == 0:
		b.Rec.StepFinished(workorder.StepValidate, &record.Skip{Reason: "the project has no validate commands"}, nil)
	case ctx.Err() != nil:
		b.Rec.StepFinished(workorder.StepValidate, &record.Skip{Reason: context.Cause(ctx).Error()}, nil)
		if agent.Status == workorder.StatusSuccess {
			// It finished in the very moment of the end; unproven is not success.
			cut := cutShort(ctx)
			e.Ending = cut.Ending
		}
	case agent.Status == workorder.StatusParked:
		b.Rec.StepFinished(workorder.StepValidate, &record.Skip{Reason: "the agent is not done"}, nil)
	default:
		e.checks = b.validate(ctx)
	}
	b.repair(ctx, &agent, &e)
	e.cause = context.Cause(ctx)
	if errors.Is(e.cause, ErrLease) || errors.Is(e.cause, ErrDisk) {
		// What the agent was when it was stopped says nothing.
		cut := cutShort(ctx)
		e.Ending = cut.Ending
	}
	return e
}

// watchLease ends the run where another box takes the task over, until stop.
func (b *Box) watchLease(interrupt context.CancelCauseFunc) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-b.Repo.Lost():
			interrupt(ErrLease)
		case <-over:
		}
	}()
	return func() { close(over) }
}

// prepare makes the order what this attempt has to do, when the task has a
// past. It returns an ending when there is nothing left to do it with.
func (b *Box) prepare() *ending {
	c := b.cloned
	if c == nil || c.Restored == nil {
		return nil
	}
	o := b.Order
	if slices.ContainsFunc(c.State.Attempts, func(a workorder.Attempt) bool { return a.Mode == workorder.ModePlan }) {
		return &ending{Ending: because(workorder.StatusError, workorder.ByOrder, workorder.ReasonPlan,
			"%s is a plan, which is not gone on with: `sandbox-agent create --from-plan %[1]s` carries it out", o.TaskID)}
	}
	if c.State.Task != "" {
		o.Task = c.State.Task
	}
	if o.Task == "" {
		return &ending{Ending: because(workorder.StatusError, workorder.ByOrder, workorder.ReasonNoTask,
			"the remote does not know what %s was asked to do: say it with --task", o.TaskID)}
	}
	if spent := c.State.SpentUSD(); o.MaxBudgetUSD != nil && spent > 0 {
		left := *o.MaxBudgetUSD - spent
		if left <= 0 {
			return &ending{Ending: because(workorder.StatusBudgetExceeded, workorder.ByBudget, workorder.ReasonBudget,
				"the task has spent $%.4g in %d attempts, max_budget_usd is $%.4g for all of them: `sandbox-agent continue %s --max-budget-usd AMOUNT` goes on", spent, c.Attempt-1, *o.MaxBudgetUSD, o.TaskID)}
		}
		o.MaxBudgetUSD = &left
	}
	b.Task.Continue(*c)
	return nil
}

// keepAgentsWork commits what the agent left, before validation, whose own
// droppings are not the agent's work, and pushes it: validation can take long.
func (b *Box) keepAgentsWork(ctx context.Context) {
	if err := b.Rec.ReleaseForLanding(); err != nil {
		b.Rec.Warn(err.Error())
	}
	if b.cloned == nil {
		return
	}
	slice, done := context.WithTimeoutCause(ctx, commitTime, fmt.Errorf("not done within %s", commitTime))
	defer done()
	settle, settled := context.WithTimeout(slice, commitTime/2) // what follows needs time, too
	b.Repo.Settle(settle)
	settled()
	_ = b.commit(slice) // landing tries again, and says so
	b.Repo.Push(ctx, b.committed)
}

func (b *Box) agent(ctx context.Context) AgentEnd {
	b.Rec.StepStarted(workorder.StepAgent)
	end := b.Task.Agent(ctx)
	b.keepAgent(end)
	var err error
	if end.Status != workorder.StatusSuccess {
		err = errors.New(end.Reasons.String())
	}
	b.Rec.StepFinished(workorder.StepAgent, err, end.Agent.ExitCode)
	return end
}

// keepAgent puts the agent's end into the result.
func (b *Box) keepAgent(end AgentEnd) {
	b.Rec.Update(func(r *workorder.Result) {
		r.Agent, r.Usage, r.ResumeAt = end.Agent, end.Usage, end.ResumeAt
		r.Evidence = append(r.Evidence, end.Evidence...)
	})
	for _, w := range end.Warnings {
		b.Rec.Warn(w)
	}
}

func (b *Box) validate(ctx context.Context) []workorder.Validation {
	b.Rec.StepStarted(workorder.StepValidate)
	checks := b.check(ctx)
	b.Rec.StepFinished(workorder.StepValidate, failures(checks), nil)
	return checks
}

func (b *Box) check(ctx context.Context) []workorder.Validation {
	checks := b.Task.Validate(ctx)
	b.Rec.Update(func(r *workorder.Result) { r.Validation = checks })
	return checks
}

// failures names the checks that failed; nil when none did.
func failures(checks []workorder.Validation) error {
	var failed []string
	for _, c := range checks {
		if !c.Passed {
			failed = append(failed, fmt.Sprintf("%s exited with %d", c.Name, c.ExitCode))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.New(strings.Join(failed, "; "))
}
