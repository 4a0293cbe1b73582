package boot

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// evidenceTime bounds bringing some ten megabytes to the remote.
const evidenceTime = time.Minute

// evidence brings what the pull request shows and links to the remote. Without it the pull request has the words only.
func (b *Box) evidence(run context.Context, l Landing) {
	r := b.Rec.Result()
	paths := r.EvidencePaths()
	if b.Forge == nil || !l.Pushed || len(l.Commits) == 0 || len(paths) == 0 || errors.Is(context.Cause(run), ErrInterrupted) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run), evidenceTime)
	defer cancel()
	sha, left, err := b.Repo.Evidence(ctx, paths)
	if err != nil {
		b.Rec.Warn("the pull request shows no pictures and logs: " + err.Error())
	}
	b.Rec.Update(func(r *workorder.Result) { r.EvidenceSHA, r.EvidenceLeft = sha, left })
}
