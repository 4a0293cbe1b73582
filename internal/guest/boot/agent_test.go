package boot

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestAgentThatNeverBegan: there is nothing to check, to repair or to prove.
func TestAgentThatNeverBegan(t *testing.T) {
	t.Parallel()
	for code, checked := range map[workorder.ReasonCode]bool{
		workorder.ReasonNoAgent: false, workorder.ReasonModelName: false,
		workorder.ReasonRoute: false, workorder.ReasonAgent: true,
	} {
		f := &fake{agent: func(context.Context) AgentEnd {
			return AgentEnd{Status: workorder.StatusFailed, Reasons: workorder.Because(code, "no")}
		}}
		o := order()
		o.Repair.MaxAttempts = 2
		o.Validate = []workorder.Check{{Name: "test", Run: "true"}}
		prover := &fakeProver{}
		r := playBox(t, f, o, func(b *Runner) { b.Prover = prover })
		if f.called("validate") != checked || f.called("repair 1") {
			t.Errorf("%s: calls %v", code, f.calls)
		}
		for _, step := range []workorder.StepName{workorder.StepValidate, workorder.StepProof} {
			if skipped := r.steps()[step] == workorder.StepSkipped; !checked && !skipped {
				t.Errorf("%s: steps %v", code, r.steps())
			}
		}
		if proven := prover.head != ""; proven != checked {
			t.Errorf("%s: proven %v", code, proven)
		}
	}
}
