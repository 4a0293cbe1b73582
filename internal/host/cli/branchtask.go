package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// findTaskPull is a pull request with the task whose branch it is of.
type taskPull struct {
	forge.PR
	task   string
	client *forgeClient
}

// findTaskPull reads an open pull request of the project's repository. One of a fork, or of a branch that is no
// task's, is refused: nothing of this program may write to it.
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
	branch := render.Clean(pr.Head)
	id, ok := branchTask(pr.Head)
	switch {
	case pr.Fork:
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("pull request #%d comes from another repository (%s): its branch is not ours to push", number, render.Clean(cmp.Or(pr.HeadRepo, "which is gone"))),
			"only pull requests of a task's own branch can be worked on")
	case !ok:
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("pull request #%d is of the branch %s, which is no task's", number, branch),
			"a task's branch begins with agent/T-; `sandbox-agent create --branch "+branch+"` starts a task from this one")
	case pr.State != forge.StateOpen:
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("pull request #%d is %s", number, render.Clean(pr.State)),
			"reopen it, or go on with its task: `sandbox-agent continue "+id+" --task \"...\"`")
	}
	return &taskPull{PR: pr, task: id, client: client}, nil
}

// branchTask is the task whose branch that is: agent/T-XXXXXXXX, with or without words behind it.
func branchTask(branch string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(branch, "agent/")
	const size = len("T-XXXXXXXX")
	if !ok || len(rest) < size {
		return "", false
	}
	id = rest[:size]
	return id, workorder.ValidTaskID(id) && workorder.ValidRefName(branch) && workorder.OwnBranch(id, branch)
}
