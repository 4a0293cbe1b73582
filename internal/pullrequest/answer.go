package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AnswerSkipReason says why the feedback gets no answers on the forge, empty when it does. They are given once the
// agent has come to its end, by itself: until then the task's state keeps the feedback for who goes on.
func AnswerSkipReason(o *workorder.Order, r *workorder.Result) string {
	switch {
	case !slices.ContainsFunc(r.Review, func(a workorder.ReviewAnswer) bool { return report.Answerable(&a) }):
		return "nothing of the feedback can be answered on a forge"
	case !Ended(r):
		return "the agent did not come to its end (" + string(r.Status) + "): `sandbox-agent continue " + o.TaskID + "` goes on with the feedback"
	case len(r.Commits) > 0 && !r.Pushed:
		return "the branch is not on the remote"
	}
	return ""
}

// Ended reports whether the agent did its part. Checks that fail after it do not change that.
func Ended(r *workorder.Result) bool {
	return Done(r) || r.Status == workorder.StatusFailed && r.EndedBy == workorder.EndedByValidation
}

// Done reports whether the feedback needs no further attempt.
func Done(r *workorder.Result) bool { return r.Status.Worked() }

// Unanswered reports whether the forge lacks answers that can be given.
func Unanswered(r *workorder.Result) bool {
	return Ended(r) && slices.ContainsFunc(r.Review, func(a workorder.ReviewAnswer) bool { return report.Answerable(&a) && !a.Replied })
}

// Answer gives the answers that are missing: a reply in each thread, a comment for all the rest. A thread is resolved
// where commits address it and the runner's own evidence is green. It may be called again: what is
// there is not posted twice. The answers come back with what was done, also with an error.
func Answer(ctx context.Context, c forge.Forge, o *workorder.Order, r *workorder.Result, pr int) ([]workorder.ReviewAnswer, error) {
	all := slices.Clone(r.Review)
	green, _ := report.Evidence(r)
	url := commitURL(o)
	var errs []error
	var rest []int
	for i := range all {
		a := &all[i]
		if !report.Answerable(a) {
			continue
		}
		if a.Source != workorder.ReviewFromThread || a.Thread == "" {
			rest = append(rest, i)
			continue
		}
		if err := answerThread(ctx, c, o, r, pr, a, green && len(a.Commits) > 0, report.Reply(a, r, url)); err != nil {
			errs = append(errs, fmt.Errorf("item %d: %w", a.Number, err))
			if stops(err, a.Replied) {
				return all, errors.Join(errs...)
			}
		}
	}
	if !slices.ContainsFunc(rest, func(i int) bool { return !all[i].Replied }) {
		return all, errors.Join(errs...)
	}
	var list []workorder.ReviewAnswer
	for _, i := range rest {
		list = append(list, all[i])
	}
	if _, err := c.Comment(ctx, pr, AnswersKey(o.TaskID, r.Attempt), report.Replies(list, r, url)); err != nil {
		return all, errors.Join(append(errs, err)...)
	}
	for _, i := range rest {
		all[i].Replied = true
	}
	return all, errors.Join(errs...)
}

// AnswersKey is the key of the comment with an attempt's answers to what is in no thread.
func AnswersKey(taskID string, attempt int) string {
	return fmt.Sprintf("%s/answers-%d", taskID, attempt)
}

func answerThread(ctx context.Context, c forge.Forge, o *workorder.Order, r *workorder.Result, pr int, a *workorder.ReviewAnswer,
	resolve bool, text string,
) error {
	if !a.Replied {
		if _, err := c.ReplyThread(ctx, pr, a.Thread, fmt.Sprintf("%s/answer-%d", o.TaskID, r.Attempt), text); err != nil {
			return err
		}
		a.Replied = true
	}
	if resolve && !a.Resolved {
		if err := c.ResolveThread(ctx, pr, a.Thread); err != nil {
			return err
		}
		a.Resolved = true
	}
	return nil
}

// stops tells of errors after which the next request would end in the same way. A thread that is gone is none, and
// who may not resolve may still reply.
func stops(err error, replied bool) bool {
	switch forge.KindOf(err) {
	case forge.NotFound, forge.Invalid:
		return false
	case forge.Permission:
		return !replied
	}
	return true
}
