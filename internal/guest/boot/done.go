package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// copyEarlier copies the earlier attempt's result into r. Cost and identity stay this box's own.
func copyEarlier(e *claim.DoneError, r *workorder.Result) {
	a, s := &e.Attempt, e.State
	r.Mode, r.Attempt, r.ResumeAt, r.Plan = a.Mode, a.Number, a.ResumeAt, a.Plan
	r.BaseBranch, r.BaseSHA, r.Branch, r.HeadSHA, r.Pushed = s.BaseBranch, s.BaseSHA, s.TargetBranch, a.HeadSHA, a.HeadSHA != ""
	r.Agent, r.TaskText, r.PastAttempts = a.Agent, s.TaskText(), earlier(s, "")
	if was := e.Result; was != nil {
		if len(was.Reasons) > 0 {
			r.Reasons = was.Reasons
		}
		r.Branch, r.Pushed, r.Commits, r.Changes, r.Checkpoint = was.Branch, was.Pushed, was.Commits, was.Changes, was.Checkpoint
		r.Validation, r.Surface, r.Repairs, r.Review, r.Rebased, r.PR = was.Validation, was.Surface, was.Repairs, was.Review, was.Rebased, was.PR
		for i := range r.Validation {
			r.Validation[i].Log = ""
		}
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf(
		"nothing was run: this is the result of attempt %d, whose files are at %s on the remote", a.Number, workorder.ResultRef(s.TaskID),
	))
}

const (
	// resultTime bounds pushing the result and some logs to the remote. The host takes the same files.
	resultTime = 30 * time.Second
	// resultHurry bounds it in a run that is being stopped; it comes out of the landing's remaining time.
	resultHurry = 2 * time.Second
	// resultLeast is the least time that is worth a try: a push takes half of it.
	resultLeast = time.Second
)

// keepResult pushes the written result to the remote. During a stop it gets the landing's remaining time.
func (b *lander) keepResult(context.Context) {
	if b.Order.Repo == "" || b.end.told != nil {
		return
	}
	ctx, cancel := lingering(b.contexts.after, resultTime, resultHurry)
	defer cancel()
	if by := b.landBy.Load(); by != nil {
		if time.Until(*by) < resultLeast {
			b.Log.Info("the result is not pushed to the remote: the run is being stopped")
			return
		}
		var over context.CancelFunc
		ctx, over = context.WithDeadline(ctx, *by)
		defer over()
	}
	left, err := b.Repo.Result(ctx)
	if err != nil {
		b.Log.Warn("push the result to the remote", "error", err)
	} else if len(left) > 0 {
		b.Log.Info("the result on the remote lacks files that are too large", "left", left)
	}
}
