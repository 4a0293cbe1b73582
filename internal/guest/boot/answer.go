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

// answerTime bounds the answers on the forge, rate limits included, and answersTime finding out what they are: reading
// messages of commits and a file.
const (
	answerTime  = 3 * time.Minute
	answersTime = 15 * time.Second
)

// Answerer tells reviewers what became of their feedback.
type Answerer interface {
	// Answers says what became of each item, from the commits up to head and the agent's reasons.
	Answers(ctx context.Context, review *workorder.Review, head string) ([]workorder.ReviewAnswer, error)
	// Post answers on the forge what r.Review has. why is not empty when it did not try. The answers
	// come back with what was done, also with an error.
	Post(ctx context.Context, review *workorder.Review, r *workorder.Result) (answers []workorder.ReviewAnswer, why string, err error)
	// Settle is told what there is when the answers were given, or could not be: feedback with which nobody has
	// to go on and nothing of which the forge lacks leaves the task's state when the attempt is released.
	Settle(r *workorder.Result)
}

// review is the feedback that this attempt works on: what the order brought, or what an attempt before it took on
// and did not answer. Nil if there is none, or if the run is for something else.
func (b tell) review() *workorder.Review {
	if b.Answers == nil || b.cloned == nil || b.cloned.State == nil {
		return nil
	}
	return b.cloned.State.Feedback(b.Order.Mode)
}

// nothingToAnswer is why no feedback is answered.
func (b tell) nothingToAnswer() string {
	switch {
	case !b.over:
		return ""
	case b.review() == nil || !b.end.ran:
		return "there is no feedback to answer"
	}
	select {
	case <-b.Repo.Lost(): // nor does the result have any, for `pr open` to give
		return ErrLease.Error() + ", and answers the feedback"
	default:
		return ""
	}
}

// answer tells reviewers what came of their feedback. The work has landed and was proven; a forge that is
// away changes nothing about the run's status, and the step says how to answer later.
func (b tell) answer(context.Context) error {
	review := b.review()
	r := b.Rec.Result()
	r.End(land(b).judge())
	r.Validation = b.end.checks
	Landed(&r, b.landing)
	short, done := lingering(b.lives.after, answersTime, answersHurry)
	answers, err := b.Answers.Answers(short, review, b.landing.Head)
	done()
	if err != nil {
		b.Rec.Warn("not all is known of what became of the feedback: " + err.Error())
	}
	r.Review = answers
	b.Rec.Update(func(res *workorder.Result) { res.Review = answers })
	err = b.post(review, &r)
	if b.landing.Err == nil {
		b.Answers.Settle(&r)
	}
	return err
}

// post gives the answers on the forge and notes in r which are there. It is skipped where the run is told to stop.
func (b tell) post(review *workorder.Review, r *workorder.Result) error {
	after, later := b.lives.after, ""
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

// keepsLease tells whether the landing leaves the task's lease with this box: until the answers are given
// nobody else may take the feedback on, or it would be answered twice. Told to stop it gives none.
func (b tell) keepsLease() bool {
	return b.review() != nil && b.end.ran && !errors.Is(context.Cause(b.lives.run), ErrInterrupted)
}
