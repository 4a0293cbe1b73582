package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskPull is a pull request with the task of its branch.
type taskPull struct {
	forge.PR
	task   string
	client *forgeClient
}

// findTaskPull reads an open pull request of the project's repository. It refuses one of a fork or of a branch
// without a task: this program must not write to it.
func findTaskPull(ctx context.Context, a *App, p *projects.Project, number int) (*taskPull, error) {
	if number <= 0 {
		return nil, usage("--pr %d is no pull request's number", number)
	}
	if p.Repo == "" {
		return nil, fault.New(workorder.ExitInvalid, fmt.Errorf("project %s has no repository, so that it has no pull requests", p.Name), "give one with --repo, or another project")
	}
	order := &workorder.Order{Repo: p.Repo, PR: cmp.Or(p.PR, &workorder.PullRequest{})}
	client, err := a.forge(ctx, order)
	if err != nil {
		return nil, err
	}
	pr, err := client.PRByNumber(ctx, number)
	if err != nil {
		return nil, client.fault(err)
	}
	id, err := tasks.OfPull(&pr)
	if err != nil {
		return nil, err
	}
	return &taskPull{PR: pr, task: id, client: client}, nil
}
