package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// answerTime bounds posting the answers, rate limits included; answersTime bounds collecting them.
const (
	answerTime  = 3 * time.Minute
	answersTime = 15 * time.Second
)

// Answerer replies to the reviewers' feedback.
type Answerer interface {
	// Answers returns the outcome of each item, from the commits up to head and the agent's reasons.
	Answers(ctx context.Context, review *workorder.Review, head string) ([]workorder.ReviewAnswer, error)
	// Post posts the answers of r.Review on the forge and returns them with their outcome, also with an error. why is
	// the reason if it did not try.
	Post(ctx context.Context, review *workorder.Review, r *workorder.Result) (answers []workorder.ReviewAnswer, why string, err error)
	// RemoveAnswered removes feedback items from the task's state whose reply is on the forge, once the attempt is released.
	RemoveAnswered(r *workorder.Result)
}

// review returns the feedback that this attempt works on; nil if there is none or the run has another purpose.
func (b *reporter) review() *workorder.Review {
	if b.Answers == nil || b.prep.cloned == nil || b.prep.cloned.State == nil {
		return nil
	}
	return b.prep.cloned.State.Feedback(b.Order.Mode)
}

// nothingToAnswer returns why no feedback is answered.
func (b *reporter) nothingToAnswer() string {
	if b.review() == nil || !b.work.ran {
		return "there is no feedback to answer"
	}
	select {
	case <-b.Repo.Lost(): // without a lease, the result has no answers that `pr open` could post
		return errLeaseLost.Error() + ", and answers the feedback"
	default:
		return ""
	}
}

// answer replies to the reviewers. A failure does not change the run's status, and the step says how to answer later.
func (b *reporter) answer(context.Context) error {
	review := b.review()
	r := b.Rec.Result()
	r.End(b.land.judge())
	r.Validation = b.work.checks
	b.land.result.CopyTo(&r)
	short, done := lingering(b.contexts.after, answersTime, answersHurry)
	answers, err := b.Answers.Answers(short, review, b.land.result.Head)
	done()
	if err != nil {
		b.Rec.Warn("the outcome of some feedback is unknown: " + err.Error())
	}
	r.Review = answers
	b.Rec.Update(func(res *workorder.Result) { res.Review = answers })
	err = b.post(review, &r)
	if b.land.result.Err == nil {
		b.Answers.RemoveAnswered(&r)
	}
	return err
}

// post posts the answers on the forge and records in r which were posted. A run that is being stopped skips it.
func (b *reporter) post(review *workorder.Review, r *workorder.Result) error {
	after, later := b.contexts.after, ""
	if pullrequest.Unanswered(r) {
		later = "; sandbox-agent pr open " + b.Order.TaskID + " gives the answers"
	}
	if after.Err() != nil {
		return &record.Skip{Reason: context.Cause(after).Error() + later}
	}
	ctx, cancel := context.WithTimeout(after, answerTime)
	defer cancel()
	answers, why, err := b.Answers.Post(ctx, review, r)
	if why != "" {
		return &record.Skip{Reason: why}
	}
	r.Review = answers
	b.Rec.Update(func(res *workorder.Result) { res.Review = answers })
	switch {
	case err != nil && after.Err() != nil:
		return &record.Skip{Reason: context.Cause(after).Error() + later}
	case err != nil:
		return fmt.Errorf("%w%s", err, later)
	}
	return nil
}

// keepsLease reports whether this box keeps the lease after landing until the answers are posted, so that no other box
// answers the same feedback. A run that is being stopped posts no answers.
func (b *reporter) keepsLease() bool {
	return b.review() != nil && b.work.ran && !errors.Is(context.Cause(b.contexts.run), errStopSignal)
}
