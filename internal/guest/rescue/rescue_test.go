package rescue

import (
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Files that validation leaves in the work tree are not committed for the agent, those of an ended repair included.
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
		"the agent works":   {[]workorder.Step{step("agent", workorder.StepRunning), {Name: "validate"}}, true},
		"validation runs":   {[]workorder.Step{agent, step("validate", workorder.StepRunning)}, false},
		"the agent repairs": {[]workorder.Step{agent, validate, step("repair", workorder.StepRunning)}, true},
		"the repair is over": {[]workorder.Step{agent, validate, step("repair", workorder.StepFailed), step("push",
			workorder.StepRunning)}, false},
		"the repair ended, it landed": {
			[]workorder.Step{agent, validate, step("repair", workorder.StepDone), step("push", workorder.StepDone)},
			false,
		},
	} {
		if got := agentAtIt(&workorder.Result{Steps: c.steps}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
