package taskrunner

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// noForgeToken is the reason if the host found no token for the forge.
const noForgeToken = "there is no token for the forge (SANDBOX_AGENT_GIT_TOKEN, GH_TOKEN, a GitHub App, or gh auth login)"

// Forge manages the task's pull request. It implements boot.Forge. The credential is accessible to root only.
type Forge struct {
	Order *workorder.Order
	Token string
	App   *workorder.ForgeApp // set if there is no token; it may be for git only
	Log   *slog.Logger
}

// Open opens or updates the pull requests of the task's branches. why is set if there should be none.
func (p *Forge) Open(ctx context.Context, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error) {
	return pullrequest.OpenAll(ctx, p.Order, r, p.open)
}

func (p *Forge) open(
	ctx context.Context, o *workorder.Order, r *workorder.Result,
) (pr *workorder.PR, why string, warnings []string, err error) {
	if why = pullrequest.SkipReason(o, r); why != "" {
		return nil, why, nil, nil
	}
	if p.Token == "" && p.App == nil {
		return nil, noForgeToken, nil, nil
	}
	c, err := p.client(o)
	if err != nil {
		return nil, "", nil, err
	}
	if !pullrequest.Unchanged(o, r) {
		pr, warnings, err = pullrequest.Open(ctx, c, o, r, pullrequest.ReportInput{Order: o, Result: r})
		return pr, "", warnings, err
	}
	if pr, warnings, err = pullrequest.Update(ctx, c, o, r); pr == nil && err == nil {
		why = "the branch has no pull request yet, and an earlier attempt has more to report about it"
	}
	return pr, why, warnings, err
}

// Answer posts the answers to reviewers. why is the reason if it did not try, else empty.
func (p *Forge) Answer(
	ctx context.Context, review *workorder.Review, r *workorder.Result,
) (answers []workorder.ReviewAnswer, why string, err error) {
	why = pullrequest.AnswerSkipReason(p.Order, r)
	later := "; sandbox-agent pr open " + p.Order.TaskID + " gives the answers"
	switch {
	case why != "":
	case review.PR == 0:
		why = "the feedback has no pull request"
	case p.Order.PR == nil:
		why = "the project has no key pr" + later
	case p.Token == "" && p.App == nil:
		why = noForgeToken + later
	}
	if why != "" {
		return r.Review, why, nil
	}
	c, err := p.client(p.Order)
	if err != nil {
		return r.Review, "", err
	}
	answers, err = pullrequest.Answer(ctx, c, p.Order, r, review.PR)
	return answers, "", err
}

// rangeDiffKey returns the key of an attempt's comment: a changed comment would notify no subscriber.
func rangeDiffKey(res *workorder.Result) string {
	return fmt.Sprintf("%s/range-diff-%d", res.TaskID, res.Attempt)
}

// Compared comments on the pull request how a rebase changed the commits. why is set if there is no comment.
func (p *Forge) Compared(ctx context.Context, res *workorder.Result) (why string, err error) {
	switch {
	case p.Order.PR == nil || res.PR == nil:
		return "no pull request of the task is known here", nil
	case p.Token == "" && p.App == nil:
		return noForgeToken, nil
	}
	c, err := p.client(p.Order)
	if err != nil {
		return "", err
	}
	_, err = c.Comment(ctx, res.PR.Number, rangeDiffKey(res), report.RangeDiff(res.Rebased))
	return "", err
}

func (p *Forge) client(o *workorder.Order) (forge.Forge, error) {
	if p.Token == "" && p.App != nil {
		return pullrequest.AppClient(o, p.App, p.Log)
	}
	return pullrequest.Client(o, p.Token, p.Log)
}
