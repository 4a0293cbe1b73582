package boot

import "github.com/sandbox-agent/sandbox-agent/workorder"

// Reasons why a plan run skips steps of other runs. The agent's changes are lost with the box.
const (
	whyNoPush   = "a plan does not change the repository"
	whyNoChecks = "there is nothing to validate in a plan"
)

// takePlan reads the agent's plan.
func (b *worker) takePlan() {
	text, path, err := b.Task.Plan()
	if err != nil {
		b.planned = because(workorder.StatusFailed, workorder.ByAgent, workorder.ReasonNoPlan, "%v", err)
		return
	}
	b.Rec.Update(func(r *workorder.Result) {
		r.Plan = text
		r.Evidence = append(r.Evidence, workorder.Evidence{Name: "the plan", Path: path, Kind: "plan"})
	})
	b.planned = workorder.Ending{Status: workorder.StatusPlanned, EndedBy: workorder.ByAgent}
}
