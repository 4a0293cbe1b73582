package boot

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// prove runs the project's checks on the task's base and head. The work has landed;
// the proof is for the reviewer and does not change the run's status.
func (b *reporter) prove(run context.Context) error {
	if b.prep.cloned == nil || len(b.land.result.Commits) == 0 {
		return &record.Skip{Reason: "there are no commits to prove"}
	}
	err := b.proof(run, b.prep.cloned.BaseSHA, b.land.result.Head)
	if cause := context.Cause(run); err == nil && errors.Is(cause, errStopSignal) {
		err = &record.Skip{Reason: cause.Error()}
	}
	return err
}

// proof proves head against base and stores the proof in the result.
func (b *reporter) proof(ctx context.Context, base, head string) error {
	p, files, err := b.Prover.Prove(ctx, base, head)
	b.Rec.Update(func(r *workorder.Result) { r.Proof, r.Evidence = p, append(r.Evidence, files...) })
	if err == nil && len(p.Reasons) > 0 {
		b.Rec.Emit(workorder.Event{Type: workorder.EventWarning, Text: "proof: " + p.Reasons.String()}) // the result has the reasons in the proof
	}
	return err
}
