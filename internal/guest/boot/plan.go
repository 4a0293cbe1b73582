package boot

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// whyNoPush is why a plan pushes nothing: what the agent changed meanwhile goes with the box.
const whyNoPush = "a plan leaves the repository as it is"

// plan lets the agent make a plan. Nothing of the work tree is saved, committed or pushed.
func (b *Box) plan(ctx context.Context) ending {
	e := ending{ran: true}
	agent := b.agent(ctx)
	b.Rec.StepFinished(workorder.StepValidate, &record.Skip{Reason: "there is nothing to validate in a plan"}, nil)
	if b.Order.Repair.MaxAttempts > 0 {
		b.Rec.StepFinished(workorder.StepRepair, &record.Skip{Reason: "there is nothing to validate in a plan"}, nil)
	}
	e.cause = context.Cause(ctx)
	if errors.Is(e.cause, ErrLease) || agent.Status != workorder.StatusSuccess {
		return e
	}
	text, path, err := b.Task.Plan()
	if err != nil {
		e.Ending = because(workorder.StatusFailed, workorder.ByAgent, workorder.ReasonNoPlan, "%v", err)
		return e
	}
	b.Rec.Update(func(r *workorder.Result) {
		r.Plan = text
		r.Evidence = append(r.Evidence, workorder.Evidence{Name: "the plan", Path: path, Kind: "plan"})
	})
	e.Ending = workorder.Ending{Status: workorder.StatusPlanned, EndedBy: workorder.ByAgent}
	return e
}
