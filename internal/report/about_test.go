package report

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A success whose checks fail as they failed before is told as done, and not as unproven.
func TestDoneAsBefore(t *testing.T) {
	t.Parallel()
	red := &workorder.CheckRun{ExitCode: 1, Tests: &workorder.TestCounts{Failed: 2}}
	r := &workorder.Result{
		Status: workorder.StatusSuccess, Reasons: workorder.Because(workorder.ReasonAsBefore, "test: 2 tests fail as before"),
		Commits: []workorder.Commit{{SHA: "1"}}, Validation: []workorder.Validation{{Name: "test", ExitCode: 1}},
		Proof: &workorder.Proof{Checks: []workorder.CheckProof{{
			Name: "test", Base: red, Head: red, Transition: workorder.TransitionStillFails,
			Counts: map[workorder.Transition]int{workorder.TransitionStillFails: 2, workorder.TransitionNewPasses: 1},
		}}},
	}
	if o := build(Data{Result: r}, inMarkdown).Outcome; o.Tone != good || o.Reason == "" {
		t.Errorf("%+v", o)
	}
	r.Reasons = nil
	if o := build(Data{Result: r}, inMarkdown).Outcome; o.Tone != warn {
		t.Errorf("without the reason: %+v", o)
	}
}
