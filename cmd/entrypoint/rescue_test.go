package main

import (
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What validation leaves in the work tree is not committed for the agent, a repair that is over included.
func TestWhoseTheLeftoversAre(t *testing.T) {
	t.Parallel()
	step := func(name workorder.StepName, s workorder.StepStatus) workorder.Step {
		return workorder.Step{Name: name, Status: s, StartedAt: time.Now()}
	}
	agent, validate := step("agent", workorder.StepDone), step("validate", workorder.StepFailed)
	for name, c := range map[string]struct {
		steps []workorder.Step
		want  bool
	}{
		"the agent works":             {[]workorder.Step{step("agent", workorder.StepRunning), {Name: "validate"}}, true},
		"validation runs":             {[]workorder.Step{agent, step("validate", workorder.StepRunning)}, false},
		"the agent repairs":           {[]workorder.Step{agent, validate, step("repair", workorder.StepRunning)}, true},
		"the repair is over":          {[]workorder.Step{agent, validate, step("repair", workorder.StepFailed), step("push", workorder.StepRunning)}, false},
		"the repair ended, it landed": {[]workorder.Step{agent, validate, step("repair", workorder.StepDone), step("push", workorder.StepDone)}, false},
	} {
		if got := agentAtIt(&workorder.Result{Steps: c.steps}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Each rebase has a comment of its own: one that is changed tells nobody.
func TestEachRebaseHasItsComment(t *testing.T) {
	t.Parallel()
	first, second := rangeDiffKey(&workorder.Result{TaskID: "T-A1B2C3D4", Attempt: 2}), rangeDiffKey(&workorder.Result{TaskID: "T-A1B2C3D4", Attempt: 3})
	if first != "T-A1B2C3D4/range-diff-2" || first == second {
		t.Errorf("%s, %s", first, second)
	}
}
