package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pulls"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/repository"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// answerer tells reviewers what became of their feedback as boot.Answerer.
type answerer struct {
	forge *pulls.Pulls
	task  *task
	repo  *repository.Repository
}

func (a *answerer) Answers(ctx context.Context, review *workorder.Review, head string) ([]workorder.ReviewAnswer, error) {
	commits, err := a.repo.Pub.Addressed(ctx, review.Since, head, len(review.Items))
	var reasons map[int]string
	if f := a.task.answers; f != nil {
		var rerr error
		reasons, rerr = f.Read()
		err = errors.Join(err, rerr)
	}
	return runner.Answered(review, commits, reasons, a.task.cfg.Redact.String), err
}

func (a *answerer) Post(ctx context.Context, review *workorder.Review, r *workorder.Result) (answers []workorder.ReviewAnswer, why string, err error) {
	return a.forge.Answer(ctx, review, r)
}

// revise makes the agent's next run one that addresses feedback.
func (t *task) revise(review *workorder.Review, h runner.History) {
	file := ""
	if answers, err := runner.NewAnswers(t.cfg.User); err != nil {
		t.cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error()})
	} else {
		t.answers, file = answers, answers.File
		t.only[workorder.ForAgent] = append(t.only[workorder.ForAgent], runner.AnswersVar+"="+file)
	}
	if left := runner.NoRoom(review); len(left) > 0 {
		t.cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("%d items of the feedback have no room beside the others: they are for another `sandbox-agent revise` after this one", len(left))})
	}
	t.asked.Review, t.asked.Answers = review, file
	t.cfg.Prompt = runner.Revising(t.cfg.Order.Task, h, review, file)
}

// Settle takes what was answered out of the task's state. What the forge could not be told stays there, for whoever revises next.
func (a *answerer) Settle(r *workorder.Result) {
	a.repo.Pub.Answered, a.repo.Pub.Later = pullrequest.Done(r) && !pullrequest.Unanswered(r), nil
	for i := range r.Review {
		if r.Review[i].Answer == workorder.LeftForLater {
			a.repo.Pub.Later = append(a.repo.Pub.Later, r.Review[i].Number)
		}
	}
}
