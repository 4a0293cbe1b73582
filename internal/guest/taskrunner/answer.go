package taskrunner

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Answerer implements boot.Answerer.
type Answerer struct {
	Forge *Forge
	Task  *Task
	Repo  *rootgit.Repository
}

// Answers returns the outcome of each item of feedback, from the commits up to head and the agent's reasons.
func (a *Answerer) Answers(ctx context.Context, review *workorder.Review, head string) ([]workorder.ReviewAnswer, error) {
	commits, err := a.Repo.Feedback.Addressed(ctx, review.Since, head, len(review.Items))
	var reasons map[int]string
	if f := a.Task.answers; f != nil {
		var rerr error
		reasons, rerr = f.Read()
		err = errors.Join(err, rerr)
	}
	return runner.Answered(review, commits, reasons, a.Task.cfg.Redact.String), err
}

// Post posts the answers.
func (a *Answerer) Post(
	ctx context.Context, review *workorder.Review, r *workorder.Result,
) (answers []workorder.ReviewAnswer, why string, err error) {
	return a.Forge.Answer(ctx, review, r)
}

// revise turns the agent's next run into one that addresses feedback.
func (t *Task) revise(review *workorder.Review, h runner.PastWork) {
	file := ""
	if answers, err := runner.NewAnswers(t.cfg.User); err != nil {
		t.cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error()})
	} else {
		t.answers, t.cfg.Answers, file = answers, answers, answers.File
		t.only[workorder.SecretForAgent] = append(t.only[workorder.SecretForAgent], runner.AnswersVar+"="+file)
	}
	if left := runner.OmittedItems(review); len(left) > 0 {
		t.cfg.Emit(workorder.Event{
			Type: workorder.EventWarning,
			Text: fmt.Sprintf("%d items of the feedback do not fit into this attempt: run `sandbox-agent revise` again after it", len(left)),
		})
	}
	t.asked.Review, t.asked.Answers = review, file
	t.cfg.Prompt = runner.Revising(t.cfg.Order.Task, h, review, file)
}

// RemoveAnswered removes answered feedback from the task's state. Answers that the forge did not get stay there, for the next revision.
func (a *Answerer) RemoveAnswered(r *workorder.Result) {
	a.Repo.Lander.Answered, a.Repo.Feedback.Later = pullrequest.Done(r) && !pullrequest.Unanswered(r), nil
	for i := range r.Review {
		if r.Review[i].Answer == workorder.AnswerDeferred {
			a.Repo.Feedback.Later = append(a.Repo.Feedback.Later, r.Review[i].Number)
		}
	}
}
