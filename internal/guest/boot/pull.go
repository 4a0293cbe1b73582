package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// forgeTime bounds opening the pull request, rate limits included: the work is safe, and it can be opened later.
const forgeTime = 2 * time.Minute

// pullRequest opens the branch's pull request. The work has landed: whatever comes of it changes
// nothing about the run's status, and the step says how to open it later.
func (b *Box) pullRequest(after context.Context, e *ending, l Landing) {
	if b.Forge == nil {
		return
	}
	if e.told != nil {
		b.Rec.StepFinished(workorder.StepPR, &record.Skip{Reason: "nothing was run"}, nil)
		return
	}
	later := "; sandbox-agent pr open " + b.Order.TaskID + " opens it"
	if after.Err() != nil {
		b.Rec.StepFinished(workorder.StepPR, &record.Skip{Reason: toldToStop(later)}, nil)
		return
	}
	ctx, cancel := context.WithTimeout(after, forgeTime)
	defer cancel()
	b.Rec.StepStarted(workorder.StepPR)
	r := b.Rec.Result()
	r.End(b.judge(e, len(l.Commits)))
	r.Validation = e.checks
	if !r.StartedAt.IsZero() {
		r.DurationMS = time.Since(r.StartedAt).Milliseconds() // the run is all but over
	}
	b.Network.Report(&r)
	Landed(&r, l)
	pr, why, warnings, err := b.Forge.Open(ctx, &r)
	for _, w := range warnings {
		b.Rec.Warn(w)
	}
	if pr != nil {
		b.Rec.Update(func(r *workorder.Result) { r.PR = pr })
	}
	switch {
	case why != "" && len(l.Commits) == 0:
		err = &record.Skip{Reason: why}
	case why != "":
		err = &record.Skip{Reason: why + later}
	case err != nil && after.Err() != nil:
		err = &record.Skip{Reason: toldToStop(later)}
	case err != nil && pr == nil:
		err = laterError{err, later}
	}
	b.Rec.StepFinished(workorder.StepPR, err, nil)
}

type laterError struct {
	error
	later string
}

func (e laterError) Error() string { return e.error.Error() + e.later }
func (e laterError) Unwrap() error { return e.error }
