package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (b *reporter) openLater() string {
	return "; sandbox-agent pr open " + b.Order.TaskID + " to open it"
}

// pullRequest opens the branch's pull request. The work has landed: an error does not change
// the run's status, and the step says how to open it later.
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
	if pr != nil {
		b.Rec.Update(func(r *workorder.Result) { r.PR = pr })
	}
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
