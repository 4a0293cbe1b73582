package boot

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// continued is the state of a task that has been tried once and has cost usd.
func continued(usd float64) *rootgit.CloneResult {
	return &rootgit.CloneResult{
		Pushed: true, Commits: []workorder.Commit{{SHA: "h0"}},
		Restored: &workorder.Restored{Head: "h0", Checkpoint: "c0", Tree: "t0", Verified: true},
		Result: claimed("h0", 2, &workorder.State{
			Task: "first text", Attempts: []workorder.Attempt{
				{ID: "a1", Number: 1, Status: workorder.StatusInterrupted, Usage: workorder.Usage{CostUSD: &usd}}, {ID: "a2", Number: 2},
			},
		}),
	}
}

func TestContinuedRun(t *testing.T) {
	t.Parallel()
	f := &fake{cloned: continued(1.5)}
	o := order()
	o.Mode, o.Task, o.AttemptID = workorder.ModeContinue, "and this", "a2"
	o.MaxBudgetUSD = new(2.0)
	r := play(t, f, o, nil)
	if r.result.Status != workorder.StatusSuccess || r.result.Attempt != 2 || r.result.Restored == nil ||
		r.result.Restored.Checkpoint != "c0" {
		t.Errorf("result %+v", r.result)
	}
	if e := r.result.PastAttempts; len(e) != 1 || e[0].Number != 1 || e[0].Status != workorder.StatusInterrupted || *e[0].CostUSD != 1.5 ||
		len(r.result.Changes["h1"]) != 1 {
		t.Errorf("earlier %+v, changes %+v", e, r.result.Changes)
	}
	if !f.called("continue") || f.told == nil || f.told.Task != "first text" || o.Task != "first text" || *o.MaxBudgetUSD != 0.5 {
		t.Errorf("calls %q, told %+v, task %q, budget %v", f.calls, f.told, o.Task, *o.MaxBudgetUSD)
	}
	if a := f.recorded; a == nil || a.Status != workorder.StatusSuccess || a.HeadSHA != "h1" || a.Number != 2 {
		t.Errorf("recorded %+v", a)
	}
}

func TestContinueThatCannot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cloned *rootgit.CloneResult
		change func(*workorder.Order)
		status workorder.Status
		by     workorder.EndedBy
	}{
		"the budget is spent": {
			continued(2.5), func(o *workorder.Order) { o.MaxBudgetUSD = new(2.5) }, workorder.StatusBudgetExceeded,
			workorder.EndedByBudget,
		},
		"the task's text is unknown": {
			func() *rootgit.CloneResult { c := continued(0); c.State.Task = ""; return c }(),
			func(*workorder.Order) {}, workorder.StatusError, workorder.EndedByOrder,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{cloned: tc.cloned}
			o := order()
			o.Mode = workorder.ModeContinue
			tc.change(o)
			r := play(t, f, o, nil)
			if r.result.Status != tc.status || r.result.EndedBy != tc.by || len(r.result.Reasons) == 0 || f.called("agent") {
				t.Errorf("%+v, calls %q", r.result, f.calls)
			}
			// The remote's commits are still reported, and the lease is given back.
			if c := r.result.Checkpoint; !r.result.Pushed || r.result.HeadSHA != "h0" || c == nil || c.SHA != "c0" || f.released == nil ||
				f.released.Status != tc.status {
				t.Errorf("%+v, released %+v", r.result, f.released)
			}
		})
	}
}

type held struct{ error }

func (held) EndedBy() workorder.EndedBy { return workorder.EndedByLease }

func TestAnotherBoxHasTheTask(t *testing.T) {
	t.Parallel()
	f := &fake{clone: func(context.Context) error { return held{errors.New("held by x")} }}
	r := play(t, f, order(), nil)
	if r.result.Status != workorder.StatusError || r.result.EndedBy != workorder.EndedByLease || f.called("land") {
		t.Errorf("%+v, calls %q", r.result, f.calls)
	}
	lost := &fake{lost: make(chan struct{})}
	lost.agent = func(ctx context.Context) AgentEnd {
		close(lost.lost)
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	r = play(t, lost, order(), nil)
	if r.result.Status != workorder.StatusError || r.result.EndedBy != workorder.EndedByLease ||
		r.result.Reasons.Code() != workorder.ReasonLease {
		t.Errorf("%+v", r.result)
	}
}

// A clone may fail when the lease is taken already.
func TestFailedCloneGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	f := &fake{clone: func(context.Context) error { return errors.New("the work tree cannot be made") }}
	r := play(t, f, order(), nil)
	if f.released == nil || f.released.Status != workorder.StatusError || f.released.EndedBy != workorder.EndedByGit || f.called("land") {
		t.Errorf("%s by %s, released %+v, calls %q", r.result.Status, r.result.EndedBy, f.released, f.calls)
	}
}

// Files that could not be committed are saved as they lie while validation runs.
func TestUncommittedIsStillSaved(t *testing.T) {
	t.Parallel()
	f := &fake{commit: func(context.Context) error { return errors.New("no room") }}
	if play(t, f, order(), nil); !f.called("push false") || f.called("push true") {
		t.Errorf("calls %q", f.calls)
	}
}

func TestParkedIsNotValidated(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := &fake{agent: func(context.Context) AgentEnd {
		return AgentEnd{
			Status:   workorder.StatusParked,
			Reasons:  workorder.Because(workorder.ReasonProviderLimit, "the limit"),
			ResumeAt: &at,
		}
	}}
	r := play(t, f, order(), nil)
	if f.called("validate") || r.result.ResumeAt == nil || !r.result.ResumeAt.Equal(at) || !f.called("land") {
		t.Errorf("calls %q, %+v", f.calls, r.result)
	}
	if f.recorded.ResumeAt == nil {
		t.Error("the remote does not know when to go on")
	}
}

// Commits that came by a bundle are not on the remote before something was saved:
// a result that says so would make the host throw the bundle away.
func TestBundleIsNotPushedByARunThatFailsEarly(t *testing.T) {
	t.Parallel()
	c := continued(0)
	c.Pushed = false
	f := &fake{cloned: c, shell: func(string) (int, string, error) { return 1, "no", nil }}
	o := order()
	o.Mode = workorder.ModeContinue
	if r := play(t, f, o, nil); r.result.EndedBy != workorder.EndedBySetup || r.result.Pushed || len(r.result.Commits) != 1 {
		t.Errorf("%+v", r.result)
	}
}
