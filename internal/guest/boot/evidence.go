package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// evidenceTime bounds bringing some ten megabytes to the remote.
const evidenceTime = time.Minute

// evidence brings what the pull request shows and links to the remote. Without it the pull request has the words only.
func (b *Box) evidence(after context.Context, l Landing) {
	r := b.Rec.Result()
	paths := r.EvidencePaths()
	if b.Forge == nil || !l.Pushed || len(l.Commits) == 0 || len(paths) == 0 || after.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(after, evidenceTime)
	defer cancel()
	sha, left, err := b.Repo.Evidence(ctx, paths)
	switch {
	case err != nil && after.Err() != nil:
		b.Rec.Warn(toldToStop(": the pull request shows no pictures and logs"))
	case err != nil:
		b.Rec.Warn("the pull request shows no pictures and logs: " + err.Error())
	}
	b.Rec.Update(func(r *workorder.Result) { r.EvidenceSHA, r.EvidenceLeft = sha, left })
}
