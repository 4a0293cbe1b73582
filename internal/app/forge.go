package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// forgeClient is a client of the forge of a repository's pull requests and issues.
type forgeClient struct {
	forge.Forge
	token credentials.ForgeToken
}

// forge makes the client for an order's repository. Without a token it can read only public data.
func (t *Tasks) forge(ctx context.Context, order *workorder.Order) (*forgeClient, error) {
	if !credentials.HasForge(order.Repo, order.PR) {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("the repository %s is a path, which has no forge", text.Clean(order.Repo)),
			"where it is one of a forge's as well, name it in the project file: pr.api_url and pr.repository")
	}
	token, err := credentials.New(t.Getenv).Forge(ctx, order.Repo, order.PR)
	if err != nil {
		return nil, err
	}
	c := &forgeClient{token: token}
	if c.Forge, err = pullrequest.Client(order, token.Token, slog.New(slog.DiscardHandler)); err != nil {
		return nil, c.fault(err)
	}
	return c, nil
}

// fault gives an error of the forge its exit code. The error's text has the advice, except which token was refused.
func (c *forgeClient) fault(err error) error {
	var fe *forge.Error
	if !errors.As(err, &fe) {
		return err
	}
	next := fe.Next
	if fe.Kind == forge.Auth && c.token.Token != "" {
		next = "the refused token came from " + c.token.From + ", which has to give one that is valid for this host"
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %s", fe.Doing, fe.Said), next)
}

// HasToken reports whether the client may write.
func (c *forgeClient) HasToken() bool { return c.token.Token != "" }

// Open opens or updates the pull request of a branch.
func (c *forgeClient) Open(
	ctx context.Context, order *workorder.Order, res *workorder.Result, told pullrequest.ReportInput,
) (*workorder.PR, []string, error) {
	pr, warnings, err := pullrequest.Open(ctx, c.Forge, order, res, told)
	return pr, warnings, c.fault(err)
}

// Answer posts the missing answers to reviewers.
func (c *forgeClient) Answer(ctx context.Context, order *workorder.Order, res *workorder.Result, pr int) ([]workorder.ReviewAnswer, error) {
	answers, err := pullrequest.Answer(ctx, c.Forge, order, res, pr)
	return answers, c.fault(err)
}
