package boot

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An order for a task that is done ends as that has ended, and runs nothing.
func TestDoneTaskIsTold(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		attempt workorder.Attempt
		result  *workorder.Result
		code    int
	}{
		"failed checks": {
			workorder.Attempt{
				ID: "a1", Number: 3, Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation,
				Reasons: workorder.Because(workorder.ReasonValidation, "the test failed").And(workorder.ReasonPush, "no route"), HeadSHA: "h3",
			},
			&workorder.Result{
				Branch: "agent/x", Pushed: true, Commits: []workorder.Commit{{SHA: "h3"}},
				Validation: []workorder.Validation{{Name: "test", ExitCode: 1, Log: "logs/test.log"}},
			},
			workorder.ExitTaskFailed,
		},
		"success, without its result": {
			workorder.Attempt{ID: "a1", Number: 3, Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent, HeadSHA: "h3"},
			nil,
			workorder.ExitOK,
		},
		"parked": {
			workorder.Attempt{
				ID: "a1", Number: 3, Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit,
				Reasons: workorder.Because(workorder.ReasonProviderLimit, "the limit"), ResumeAt: &at,
			}, nil, workorder.ExitParked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			usd := 2.5
			c.attempt.Usage.CostUSD = &usd
			done := &claim.DoneError{
				State: &workorder.State{
					TaskID:       "T-A1B2C3D4",
					Task:         "x",
					TargetBranch: "agent/x",
					Attempts:     []workorder.Attempt{c.attempt},
				},
				Attempt: c.attempt,
				Result:  c.result,
			}
			f := &fake{clone: func(context.Context) error { return done }}
			r := play(t, f, order(), nil)
			res := r.result
			if r.code != c.code || res.Status != c.attempt.Status || res.EndedBy != c.attempt.EndedBy ||
				!slices.Equal(res.Reasons, c.attempt.Reasons) ||
				res.Attempt != 3 ||
				res.HeadSHA != c.attempt.HeadSHA {
				t.Errorf("code %d, %+v", r.code, res)
			}
			for _, call := range []string{"setup-1", "agent", "validate", "land", "result"} {
				if f.called(call) {
					t.Errorf("%s was called: %q", call, f.calls)
				}
			}
			if res.Usage.CostUSD != nil || len(res.PastAttempts) != 1 || *res.PastAttempts[0].CostUSD != usd {
				t.Errorf("this box cost %+v, before: %+v", res.Usage, res.PastAttempts)
			}
			if s := r.steps()["clone"]; s != workorder.StepSkipped {
				t.Errorf("the clone is %s", s)
			}
			if c.result != nil && (len(res.Commits) != 1 || len(res.Validation) != 1 || res.Validation[0].Log != "") {
				t.Errorf("%+v", res)
			}
			if at := res.ResumeAt; (at == nil) != (c.attempt.ResumeAt == nil) {
				t.Errorf("resumes at %v", at)
			}
		})
	}
}

// Bringing the result to the remote costs a stop nothing but what the landing left of its time.
func TestResultInAStop(t *testing.T) {
	t.Parallel()
	f := &fake{}
	signals := make(chan os.Signal, 2)
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	began := make(chan time.Time, 1)
	f.result = func(ctx context.Context) error {
		d, ok := ctx.Deadline()
		if !ok || time.Until(d) > workorder.AgentGrace+workorder.LandGrace {
			t.Errorf("it may take until %v, the landing had %s", d, workorder.AgentGrace+workorder.LandGrace)
		}
		began <- time.Now()
		<-ctx.Done() // a remote that hangs
		return ctx.Err()
	}
	r := play(t, f, order(), signals)
	if r.code != workorder.ExitInterrupted || !f.called("release") || len(began) != 1 {
		t.Errorf("code %d, calls %q", r.code, f.calls)
	}

	// A landing that used up its time leaves none.
	slow := &fake{}
	signals = make(chan os.Signal, 2)
	slow.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	var box *Runner
	slow.land = func(context.Context) land.Result {
		now := time.Now()
		box.landBy.Store(&now) // as if it had taken so long
		return land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Pushed: true}
	}
	if playWith(t, slow, order(), signals, func(b *Runner) { box = b }); slow.called("result") || !slow.called("release") {
		t.Errorf("calls %q", slow.calls)
	}
}
