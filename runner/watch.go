package runner

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// watch waits for the process, sends further stop signals and kills the processes that the agent leaves.
func (a *agentRun) watch(ctx context.Context, p *proc.Process, end *processEnd) (waitErr error) {
	var beside sync.WaitGroup
	beside.Go(func() { a.escalate(ctx, p) })
	beside.Go(func() { end.hang = a.attend(ctx, p) })
	waitErr = p.Wait()
	// Determined right away: a context that ends later did not end the agent.
	end.cause = classify(context.Cause(ctx))
	beside.Wait()
	if !errors.Is(end.cause, errHang) {
		end.hang = nil // it ended while it was being examined
	}
	p.Signal(syscall.SIGKILL) // the rest of its process group
	if a.others != nil {
		end.left = a.others.KillOthers()
	}
	return waitErr
}

func (a *agentRun) attend(ctx context.Context, p *proc.Process) *hang {
	s := newProcessScope(a.User, a.others)
	s.agent = p.PID()
	heard := func() int64 { return a.heard.Load() + a.wire.moved() }
	if r, ok := a.harness.(harness.BusyIdler); ok {
		before := heard()                   // output of the attempt that hung, if this is its resumption
		s.busyIdle = func(p process) bool { // before its first output it is starting
			return p.Name == r.BusyProcess() && heard() > before
		}
	}
	w := watchdog{window: a.Hang, look: s.look, heard: heard, changed: a.Changed}
	if w.window <= 0 {
		w.window = a.Order.HangTimeout()
	}
	look, cost := time.NewTicker(w.interval()), time.NewTicker(costLook)
	defer look.Stop()
	defer cost.Stop()
	told := 0.0 // Report the cost: a box that vanishes has been paid for, too.
	refused, last := a.wire.over, (<-chan time.Time)(nil)
	var due <-chan time.Time
	if left, ok := a.notices.untilTime(time.Now()); ok {
		t := time.NewTimer(left)
		defer t.Stop()
		due = t.C
	}
	for {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			return nil
		case now := <-due:
			a.notices.tellOfTime(now)
		case now := <-cost.C:
			told = a.money.look(told)
			a.tellOfForm()
			if a.wire.stranded(now, a.limits().limitWord) {
				a.stop(errLimit)
			}
			if a.wire.unreachable() != "" {
				a.stop(errRoute)
			}
		case <-refused:
			// The model's server has just reported it to the agent, which may have a last word.
			refused = nil
			t := time.NewTimer(a.limits().lastWord)
			defer t.Stop()
			last = t.C
		case <-last:
			a.stop(errBudget)
		case now := <-look.C:
			if w.hung(now) {
				h := &hang{quiet: now.Sub(w.quiet)}
				a.hung(h, s)
				return h
			}
		}
	}
}

// tellOfForm notifies the agent, once, that its answers to reviewers are malformed.
func (a *agentRun) tellOfForm() {
	if a.Answers == nil || a.toldForm {
		return
	}
	_, err := a.Answers.Read()
	if form, wrong := errors.AsType[*FormError](err); wrong {
		a.toldForm = true
		a.notices.tell(
			"The file that $" + AnswersVar + " names has no valid answer yet: each reason needs a line that begins with the item's number " +
				"and a colon, as in `2: The caller checks the value already.` " +
				"The file begins with: " + a.text(
				form.Said,
			),
		)
	}
}

// hung saves evidence of the hang, then stops the agent.
func (a *agentRun) hung(h *hang, s *processScope) {
	agents, beside := s.look()
	h.what = a.Redact.String(s.hanging(agents))
	e := workorder.Event{Type: workorder.EventHang, Status: "ended"}
	if err := a.saveHang(h, s.agent, agents, beside); err != nil {
		a.emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error()})
	}
	if a.canResume() {
		e.Status = "resumed"
	}
	e.Path, e.Text = h.path, h.reason()
	a.emit(e)
	a.stop(errHang)
}

// escalate sends the second and later stop signals, spread evenly over the grace period.
func (a *agentRun) escalate(ctx context.Context, p *proc.Process) {
	select {
	case <-p.Done():
		return
	case <-ctx.Done():
	}
	step := a.limits().grace / time.Duration(len(a.cmd.Stop))
	for _, sig := range a.cmd.Stop[1:] {
		t := time.NewTimer(step)
		select {
		case <-p.Done():
			t.Stop()
			return
		case <-t.C:
			p.Signal(sig)
		}
	}
}
