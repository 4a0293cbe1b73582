package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Pulls opens pull requests on the forge of a repository.
type Pulls interface {
	HasToken() bool
	// Open opens or updates the pull request. With an error it may still return one: then only a part failed.
	Open(ctx context.Context, order *workorder.Order, res *workorder.Result, told pullrequest.Told) (pr *workorder.PR, warnings []string, err error)
	// Answer posts the missing answers to reviewers.
	Answer(ctx context.Context, order *workorder.Order, res *workorder.Result, pr int) ([]workorder.ReviewAnswer, error)
}

// Opening opens the pull request of a task whose run could not open it.
type Opening struct {
	Draft   bool
	Base    string // if empty the project's, else the task's
	Connect func(context.Context, *workorder.Order) (Pulls, error)

	order *workorder.Order
	res   *workorder.Result
	pulls Pulls
}

// look reads the output of the last attempt, and connects to the forge.
func (o *Opening) look(ctx context.Context, rec *store.Record) (p *Pull, err error) {
	if o.res, err = outcome.ReadResult(rec); err != nil {
		return &Pull{NoResult: err}, nil
	}
	if o.order, err = savedOrder(rec.Dir); err != nil {
		return nil, err
	}
	pr := workorder.PullRequest{}
	if o.order.PR != nil {
		pr = *o.order.PR
	}
	pr.Draft = pr.Draft || o.Draft
	if o.Base != "" {
		pr.Base = o.Base
	}
	o.order.PR = &pr
	p = &Pull{Repo: text.Clean(o.order.Repo), Nothing: pullrequest.Why(o.order, o.res)}
	if p.Nothing == "" {
		if o.pulls, err = o.Connect(ctx, o.order); err != nil {
			return nil, err
		}
		p.Token = o.pulls.HasToken()
	}
	return p, nil
}

// open opens the pull request, and posts the answers to feedback that the run could not post.
func (o *Opening) open(ctx context.Context, rec *store.Record) (pr *workorder.PR, warnings []string, err error) {
	told, _ := outcome.Tell(rec, o.res)
	pr, warnings, err = o.pulls.Open(ctx, o.order, o.res, told)
	if pr == nil {
		return nil, warnings, err
	}
	if aerr := outcome.Amend(rec, func(r *workorder.Result) { r.PR = pr }); err != nil || aerr != nil {
		return nil, warnings, errors.Join(err, aerr)
	}
	if pullrequest.WhyNotAnswer(o.order, o.res) != "" {
		return pr, warnings, nil
	}
	answers, err := o.pulls.Answer(ctx, o.order, o.res, pr.Number)
	return pr, warnings, errors.Join(err, outcome.Amend(rec, func(r *workorder.Result) { r.Review = answers }))
}

// savedOrder is the order of a task's last attempt, without secrets.
func savedOrder(dir string) (*workorder.Order, error) {
	b, err := os.ReadFile(filepath.Join(dir, workorder.OrderFile))
	if err != nil {
		return nil, fmt.Errorf("read the task's order: %w", err)
	}
	return workorder.DecodeOrder(b)
}
