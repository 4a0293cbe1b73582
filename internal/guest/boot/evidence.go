package boot

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nothingLanded returns why the branch is not described.
func (b *reporter) nothingLanded() string {
	if b.prep.cloned == nil || len(b.land.result.Commits) == 0 {
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
