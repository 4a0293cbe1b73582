package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// DoneError is of a Clone that found the task done, by an order that wants no more than to be told (workorder.ExistsTell).
type DoneError struct {
	State   *workorder.State
	Attempt workorder.Attempt
	Result  *workorder.Result // as it was recorded; nil: only the state tells of it
	Err     error
}

func (e *DoneError) Error() string { return e.Err.Error() }
func (e *DoneError) Unwrap() error { return e.Err }

// tell makes the result of a run that ran nothing the one of the attempt that it tells of. The cost of this box, and which one
// it is, stay its own; files that lie elsewhere are not named.
func (e *DoneError) tell(r *workorder.Result) {
	a, s := &e.Attempt, e.State
	r.Mode, r.Attempt, r.ResumeAt, r.Plan = a.Mode, a.Number, a.ResumeAt, a.Plan
	r.BaseBranch, r.BaseSHA, r.Branch, r.HeadSHA, r.Pushed = s.BaseBranch, s.BaseSHA, s.TargetBranch, a.HeadSHA, a.HeadSHA != ""
	r.Agent, r.Asked, r.Earlier = a.Agent, s.Asked(), earlier(s, "")
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
	r.Warnings = append(r.Warnings, fmt.Sprintf("nothing was run: this is how attempt %d ended, whose files are at %s on the remote", a.Number, workorder.ResultRef(s.TaskID)))
}

const (
	// resultTime bounds bringing the result and some logs to the remote: a few hundred kB, rarely more, and copies of what the host takes.
	resultTime = 30 * time.Second
	// resultHurry is the most of it in a run that is told to stop: of what the landing has left of its time.
	resultHurry = 2 * time.Second
	// resultLeast is worth beginning for: a push takes half of it.
	resultLeast = time.Second
)

// keepResult brings the result to the remote, once it is written. A stop is not made longer by it: there, it has what is left of the time
// that the landing had, and the result in the output is the one that counts.
func (b land) keepResult(context.Context) {
	if b.Order.Repo == "" || b.end.told != nil {
		return
	}
	ctx, cancel := lingering(b.lives.after, resultTime, resultHurry)
	defer cancel()
	if by := b.landBy.Load(); by != nil {
		if time.Until(*by) < resultLeast {
			b.Log.Info("the result is not brought to the remote: the run is being stopped")
			return
		}
		var over context.CancelFunc
		ctx, over = context.WithDeadline(ctx, *by)
		defer over()
	}
	left, err := b.Repo.Result(ctx)
	if err != nil {
		b.Log.Warn("bring the result to the remote", "error", err)
	} else if len(left) > 0 {
		b.Log.Info("the result on the remote is without files that are too large", "left", left)
	}
}
