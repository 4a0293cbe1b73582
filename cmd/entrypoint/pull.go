package main

import (
	"context"
	"log/slog"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// noForgeToken says why the forge is not spoken to. The host found none.
const noForgeToken = "there is no token for the forge (SANDBOX_AGENT_GIT_TOKEN, GH_TOKEN, a GitHub App, or gh auth login)"

// pull opens the task's pull request as boot.Forge. The credential is root's alone.
type pull struct {
	order *workorder.Order
	token string
	app   *workorder.GitHubApp // where there is no token; it may be git's alone
	log   *slog.Logger
}

func (p *pull) Open(ctx context.Context, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error) {
	if why = pullrequest.Why(p.order, r); why != "" {
		return nil, why, nil, nil
	}
	if p.token == "" && p.app == nil {
		return nil, noForgeToken, nil, nil
	}
	c, err := p.client()
	if err != nil {
		return nil, "", nil, err
	}
	if !pullrequest.AsBefore(p.order, r) {
		pr, warnings, err = pullrequest.Open(ctx, c, p.order, r, pullrequest.Told{Order: p.order, Result: r})
		return pr, "", warnings, err
	}
	if pr, warnings, err = pullrequest.Update(ctx, c, p.order, r); pr == nil && err == nil {
		why = "the branch has no pull request yet, and an attempt before this one has more to say of it"
	}
	return pr, why, warnings, err
}

func (p *pull) client() (*forge.Client, error) {
	if p.token == "" && p.app != nil {
		return pullrequest.AppClient(p.order, p.app, p.log)
	}
	return pullrequest.Client(p.order, p.token, p.log)
}
