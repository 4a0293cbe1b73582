package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nothingLanded returns why the branch is not described.
func (b *reporter) nothingLanded() string {
	if b.prep.cloned == nil || b.land.result.CommitCount() == 0 {
		return "there are no commits"
	}
	return ""
}

// sensitiveFiles lists the changed files that run on other machines. It does not delay a stop.
func (b *reporter) sensitiveFiles(ctx context.Context) error {
	found, err := b.Repo.Surface(ctx, b.prep.cloned.BaseSHA, b.land.result.Head)
	if err != nil {
		b.Rec.Warn("the list of sensitive files that the branch changes is incomplete: " + err.Error())
	}
	changes, cerr := b.Repo.Changes(ctx, b.prep.cloned.BaseSHA, b.land.result.Head)
	if cerr != nil {
		b.Rec.Warn("the files that the commits change are unknown: " + cerr.Error())
	}
	b.Rec.Update(func(r *workorder.Result) { r.Surface, r.Changes = found, changes })
	return errors.Join(err, cerr)
}

// evidence pushes the files that the pull request shows and links. Without them the pull request has only text.
func (b *reporter) evidence(ctx context.Context) error {
	r := b.Rec.Result()
	paths := r.EvidencePaths()
	if !b.land.result.Pushed || len(paths) == 0 {
		return &record.Skip{Reason: "there is nothing to show"}
	}
	sha, left, err := b.Repo.Evidence(ctx, paths)
	if err != nil {
		b.Rec.Warn("the pull request shows no pictures and logs: " + err.Error())
	}
	b.Rec.Update(func(r *workorder.Result) { r.EvidenceSHA, r.EvidenceLeft = sha, left })
	return err
}

// prove runs the project's checks on the task's base and head. It does not change the run's status.
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
	b.work.leaveOut(p.LeftOut)
	if err == nil && len(p.Reasons) > 0 {
		b.Rec.Emit(workorder.Event{Type: workorder.EventWarning, Text: "proof: " + p.Reasons.String()}) // the result has the reasons in the proof
	}
	return err
}

func (b *reporter) openLater() string {
	return "; sandbox-agent pr open " + b.Order.TaskID + " to open it"
}

// pullRequest opens the branch's pull request. A failure does not change the run's status; the step says how to open it later.
func (b *reporter) pullRequest(ctx context.Context) error {
	r := b.Rec.Result()
	r.End(b.land.judge())
	r.Validation = b.work.checks
	if !r.StartedAt.IsZero() {
		r.DurationMS = time.Since(r.StartedAt).Milliseconds() // the run is almost over
	}
	b.Network.Report(&r)
	b.land.result.CopyTo(&r)
	pr, why, warnings, err := b.Forge.Open(ctx, &r)
	for _, w := range warnings {
		b.Rec.Warn(w)
	}
	b.Rec.Update(func(to *workorder.Result) {
		if to.Repos = r.Repos; pr != nil {
			to.PR = pr
		}
	})
	b.land.result.Repos = r.Repos
	switch {
	case why != "" && len(b.land.result.Commits) == 0:
		return &record.Skip{Reason: why}
	case why != "":
		return &record.Skip{Reason: why + b.openLater()}
	case err != nil && pr == nil:
		return fmt.Errorf("%w%s", err, b.openLater())
	}
	return err
}
