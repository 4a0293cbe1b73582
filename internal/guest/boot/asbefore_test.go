package boot

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// provesAs is a prover whose proof has one check.
type provesAs struct {
	fakeProver
	check workorder.CheckProof
}

func (p *provesAs) Prove(_ context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	return &workorder.Proof{Base: base, Head: head, Checks: []workorder.CheckProof{p.check}}, nil, nil
}

// A check that failed before, and is no worse, does not make the task fail; one that is not known to be as before does.
func TestFailsAsBefore(t *testing.T) {
	t.Parallel()
	red := func(failed int) *workorder.CheckRun {
		return &workorder.CheckRun{ExitCode: 1, Tests: &workorder.TestCounts{Passed: 3, Failed: failed}}
	}
	counts := func(t workorder.Transition) map[workorder.Transition]int {
		return map[workorder.Transition]int{workorder.StillFails: 2, workorder.StillPasses: 3, t: 1}
	}
	same := workorder.CheckProof{Name: "test", Base: red(2), Head: red(2), Transition: workorder.StillFails, Counts: map[workorder.Transition]int{workorder.StillFails: 2, workorder.StillPasses: 3}}
	for name, c := range map[string]struct {
		change func(*workorder.CheckProof, *workorder.Order)
		want   workorder.Status
	}{
		"as before":           {func(*workorder.CheckProof, *workorder.Order) {}, workorder.StatusSuccess},
		"one is mended":       {func(c *workorder.CheckProof, _ *workorder.Order) { c.Base, c.Counts = red(3), counts(workorder.Fixed) }, workorder.StatusSuccess},
		"strict":              {func(_ *workorder.CheckProof, o *workorder.Order) { o.Strict = true }, workorder.StatusFailed},
		"one breaks":          {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.Broken) }, workorder.StatusFailed},
		"a new one":           {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.NewFails) }, workorder.StatusFailed},
		"one is gone":         {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.Gone) }, workorder.StatusFailed},
		"one is skipped":      {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.NowSkipped) }, workorder.StatusFailed},
		"one is flaky":        {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.Flaky) }, workorder.StatusFailed},
		"one is not compared": {func(c *workorder.CheckProof, _ *workorder.Order) { c.Counts = counts(workorder.NotCompared) }, workorder.StatusFailed},
		"no report":           {func(c *workorder.CheckProof, _ *workorder.Order) { c.Head = &workorder.CheckRun{ExitCode: 1} }, workorder.StatusFailed},
		"green before": {func(c *workorder.CheckProof, _ *workorder.Order) {
			c.Base = &workorder.CheckRun{Passed: true, Tests: c.Base.Tests}
		}, workorder.StatusFailed},
		"no base":       {func(c *workorder.CheckProof, _ *workorder.Order) { c.Base = nil }, workorder.StatusFailed},
		"another check": {func(c *workorder.CheckProof, _ *workorder.Order) { c.Name = "lint" }, workorder.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, o := &provesAs{check: same}, order()
			o.Validate = []workorder.Command{{Name: "test", Run: "false"}}
			c.change(&p.check, o)
			f := &fake{validate: func() []workorder.Validation { return []workorder.Validation{{Name: "test", ExitCode: 1}} }}
			r := playBox(t, f, o, func(b *Box) { b.Prover = p })
			if r.result.Status != c.want || (r.result.Reasons.Code() == workorder.ReasonAsBefore) != (c.want == workorder.StatusSuccess) || (r.code == 0) != (c.want == workorder.StatusSuccess) {
				t.Errorf("exit code %d, %s: %+v", r.code, r.result.Status, r.result.Reasons)
			}
		})
	}
}
