package main

import (
	"context"
	"log/slog"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pull opens the task's pull request as boot.Forge. The credential is root's alone.
type pull struct {
	order *workorder.Order
	token string
	app   *workorder.GitHubApp // instead of a token
	log   *slog.Logger
}

func (p *pull) Open(ctx context.Context, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error) {
	if why = pullrequest.Why(p.order, r); why != "" {
		return nil, why, nil, nil
	}
	if p.token == "" && p.app == nil {
		return nil, "there is no token for the forge (GH_TOKEN, gh auth login, or a GitHub App)", nil, nil
	}
	c, err := p.client()
	if err != nil {
		return nil, "", nil, err
	}
	pr, warnings, err = pullrequest.OpenNamed(ctx, c, p.order, r, func(r *workorder.Result) string { return pullrequest.Body(p.order, r) })
	return pr, "", warnings, err
}

func (p *pull) client() (*forge.Client, error) {
	if p.app != nil {
		return pullrequest.AppClient(p.order, p.app, p.log)
	}
	return pullrequest.Client(p.order, p.token, p.log)
}
