package boot

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// prove runs the project's checks on the commit that the task began with and on the last one. The work has landed;
// what comes of it is for the reviewer, and changes nothing about the run's status.
func (b *Box) prove(run context.Context, l Landing) {
	if b.Prover == nil || b.Rebaser != nil { // a rebase is proven before it is pushed
		return
	}
	skip := ""
	switch {
	case len(b.Order.Validate) == 0 && b.Order.Dev == nil:
		skip = "the project has neither validate commands nor a development server"
	case b.cloned == nil, len(l.Commits) == 0:
		skip = "there are no commits to prove"
	case run.Err() != nil:
		skip = context.Cause(run).Error()
	}
	if skip != "" {
		b.Rec.StepFinished(workorder.StepProof, &record.Skip{Reason: skip}, nil)
		return
	}
	b.Rec.StepStarted(workorder.StepProof)
	p, files, err := b.Prover.Prove(run, b.cloned.BaseSHA, l.Head)
	b.Rec.Update(func(r *workorder.Result) { r.Proof, r.Evidence = p, append(r.Evidence, files...) })
	if err == nil && p.Reason != "" {
		b.Rec.Warn("proof: " + p.Reason)
	}
	if cause := context.Cause(run); err == nil && cause != nil && errors.Is(cause, ErrInterrupted) {
		err = &record.Skip{Reason: cause.Error()}
	}
	b.Rec.StepFinished(workorder.StepProof, err, nil)
}
