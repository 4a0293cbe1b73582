package boot

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// redUntil makes validation fail until so many rounds have been run.
func redUntil(f *fake, round int) {
	n := 0
	f.validate = func() []workorder.Validation {
		n++
		return []workorder.Validation{{Name: "lint", Passed: true}, {Name: "test", Passed: n > round, ExitCode: 1}}
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	f := &fake{agent: func(context.Context) AgentEnd {
		return AgentEnd{
			Status: workorder.StatusSuccess,
			Usage:  workorder.Usage{CostUSD: new(1.0), InputTokens: 10},
			Agent:  workorder.Agent{Turns: 3},
		}
	}}
	redUntil(f, 2)
	var spent []float64
	f.repair = func(_ int, checks []workorder.Validation, used workorder.Usage) AgentEnd {
		if len(checks) != 2 || checks[1].Passed {
			t.Errorf("sent back: %+v", checks)
		}
		spent = append(spent, *used.CostUSD)
		return AgentEnd{
			Status: workorder.StatusSuccess,
			Usage:  workorder.Usage{CostUSD: new(0.5), InputTokens: 1},
			Agent:  workorder.Agent{Turns: 1},
		}
	}
	o := order()
	o.Repair.MaxAttempts, o.MaxBudgetUSD = 3, new(5.0)
	r := play(t, f, o, nil)
	if r.result.Status != workorder.StatusSuccess || r.steps()["repair"] != workorder.StepDone ||
		r.steps()["validate"] != workorder.StepFailed {
		t.Errorf("%s, steps %v", r.result.Status, r.steps())
	}
	if diff := cmp.Diff([]float64{1, 1.5}, spent); diff != "" {
		t.Errorf("spent before (-want +got):\n%s", diff)
	}
	if u := r.result.Usage; u.CostUSD == nil || *u.CostUSD != 2 || u.InputTokens != 12 || r.result.Agent.Turns != 5 {
		t.Errorf("usage %+v, %d turns", u, r.result.Agent.Turns)
	}
	var rounds []string
	for _, x := range r.result.Repairs {
		rounds = append(rounds, fmt.Sprintf("%d %v %s %d", x.Number, x.Failed, x.Status, len(x.Validation)))
	}
	if diff := cmp.Diff([]string{"1 [test] success 2", "2 [test] success 2"}, rounds); diff != "" {
		t.Errorf("rounds (-want +got):\n%s", diff)
	}
	from := slices.Index(f.calls, "validate")
	want := []string{
		"validate", "settle", "baseline", "push false", "repair 1", "settle", "commit", "push true", "validate",
		"settle", "baseline", "push false", "repair 2", "settle", "commit", "push true", "validate", "settle", "land",
	}
	if diff := cmp.Diff(want, f.calls[from:from+len(want)]); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// The loop ends: at its bound, with an agent that did not end well, and it does not begin where there is nothing to send back.
func TestRepairEnds(t *testing.T) {
	t.Parallel()
	well := AgentEnd{Status: workorder.StatusSuccess}
	for name, tc := range map[string]struct {
		most, red int
		agent     AgentEnd
		again     AgentEnd
		rounds    int
		status    workorder.Status
		step      workorder.StepStatus
	}{
		"green at once": {
			most: 2, red: 0, agent: well, again: well, rounds: 0, status: workorder.StatusSuccess,
			step: workorder.StepSkipped,
		},
		"never green": {
			most: 2, red: 9, agent: well, again: well, rounds: 2, status: workorder.StatusFailed,
			step: workorder.StepFailed,
		},
		"the agent failed before": {
			most: 2, red: 9, agent: AgentEnd{
				Status:  workorder.StatusFailed,
				Reasons: workorder.Because(workorder.ReasonAgent, "no"),
			}, again: well, rounds: 0, status: workorder.StatusFailed,
			step: workorder.StepSkipped,
		},
		"the agent gives up in it": {most: 2, red: 9, agent: well, again: AgentEnd{
			Status:  workorder.StatusBudgetExceeded,
			Reasons: workorder.Because(workorder.ReasonBudget, "spent"),
		}, rounds: 1, status: workorder.StatusFailed, step: workorder.StepFailed},
		"not asked for": {most: 0, red: 9, agent: well, again: well, rounds: 0, status: workorder.StatusFailed, step: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{
				agent:  func(context.Context) AgentEnd { return tc.agent },
				repair: func(int, []workorder.Validation, workorder.Usage) AgentEnd { return tc.again },
			}
			redUntil(f, tc.red)
			o := order()
			o.Repair.MaxAttempts = tc.most
			r := play(t, f, o, nil)
			if len(r.result.Repairs) != tc.rounds || r.result.Status != tc.status || r.steps()["repair"] != tc.step {
				t.Errorf("%d rounds, %s, step %q", len(r.result.Repairs), r.result.Status, r.steps()["repair"])
			}
		})
	}
}

func TestRepairOfUnknownCost(t *testing.T) {
	t.Parallel()
	f := &fake{
		agent: func(context.Context) AgentEnd {
			return AgentEnd{Status: workorder.StatusSuccess, Usage: workorder.Usage{CostUSD: new(1.0)}}
		},
		repair: func(int, []workorder.Validation, workorder.Usage) AgentEnd {
			return AgentEnd{Status: workorder.StatusSuccess, Usage: workorder.Usage{OutputTokens: 3}}
		},
	}
	redUntil(f, 1)
	o := order()
	o.Repair.MaxAttempts = 1
	r := play(t, f, o, nil).result
	if r.Usage.CostUSD == nil || *r.Usage.CostUSD != 1 || r.Usage.OutputTokens != 3 || len(r.Warnings) != 1 {
		t.Errorf("usage %+v, warnings %q", r.Usage, r.Warnings)
	}
}
