package tasks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Forge reads the feedback on pull requests.
type Forge interface {
	Feedback(ctx context.Context, pr int, since time.Time) (forge.Feedback, error)
	// Commented reports whether our comment with that key exists.
	Commented(ctx context.Context, pr int, key string) (bool, error)
}

// ReadReview adds the feedback that is newer than the task's state: that of the pull request (nil if none was asked for), then
// that of the file.
func (r *Remote) ReadReview(ctx context.Context, f Forge, pr *forge.PR, file FeedbackFile) error {
	r.Review = &workorder.Review{}
	warnings := slices.Clone(file.warnings)
	if pr != nil {
		state := r.State
		if state == nil {
			state = &workorder.State{}
		}
		since, err := readUntil(ctx, f, pr.Number, state)
		if err != nil {
			return err
		}
		feedback, err := f.Feedback(ctx, pr.Number, since)
		if err != nil {
			return err
		}
		var more []string
		r.Review, more = reviewOf(pr, &feedback, unfinished(state))
		warnings = append(warnings, more...)
	}
	items := &r.Review.Items
	room := workorder.MaxReviewItems - len(*items)
	if left := len(file.items) - room; left > 0 {
		warnings = append(warnings, fmt.Sprintf("a run takes %d items of feedback: the last %d entries of the file are left out, give them again after this one", workorder.MaxReviewItems, left))
	}
	for _, item := range file.items[:min(len(file.items), room)] {
		item.Number = len(*items) + 1
		*items = append(*items, item)
	}
	r.Notes = append(r.Notes, warnings...)
	return nil
}

// nothing explains why there is no feedback to address, which is not a failure. It is empty if there is some.
func (s State) nothing() string {
	r := s.Remote.Review
	if r == nil {
		return ""
	}
	switch n := len(r.Items); {
	case n == 0 && r.PR == 0:
		return "the feedback file is empty: there is nothing to address"
	case n == 0 && s.Remote.State != nil && unfinished(s.Remote.State) != nil:
		return fmt.Sprintf("pull request #%d has no feedback to address; what an attempt before was given is not all answered: `sandbox-agent continue %s` goes on with it", r.PR, s.Task)
	case n == 0:
		return fmt.Sprintf("pull request #%d has no feedback to address", r.PR)
	case s.Text == "" && !commands(r):
		return fmt.Sprintf("pull request #%d has nothing to address: what there is (%d) is by people or bots that may not write to the repository; --task \"...\" says what to do with it, --dry-run --task shows it", r.PR, n)
	}
	return ""
}

// readUntil is the time of the newest answered feedback. Answers that an attempt could not post may have been posted by `pr open`
// since, which the task's state does not show.
func readUntil(ctx context.Context, f Forge, pr int, s *workorder.State) (time.Time, error) {
	if r := s.Review; r != nil && r.PR == pr && r.Until.After(s.ReviewedUntil) && unfinished(s) == nil {
		if there, err := f.Commented(ctx, pr, pullrequest.AnswersKey(s.TaskID, s.Last().Number)); err != nil || there {
			return r.Until, err
		}
	}
	return s.ReviewedUntil, nil
}

// unfinished is the feedback that the last attempt took and did not finish. A successful attempt finished it, even if it could not
// post its answers: if the forge has them now, they were posted since.
func unfinished(s *workorder.State) *workorder.Review {
	if last := s.Last(); last != nil && last.Status.Worked() {
		return nil
	}
	return s.Review
}

// pullNumber is the number of the newest pull request in the record's results; 0 if there is none.
func pullNumber(rec *store.Record) int {
	for _, a := range slices.Backward(rec.Attempts()) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		if res, err := outcome.ReadResult(past); err == nil && res.PR != nil && res.PR.Number > 0 {
			return res.PR.Number
		}
	}
	return 0
}
