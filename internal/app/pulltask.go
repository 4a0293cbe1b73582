package app

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskPull is a pull request with the task of its branch.
type taskPull struct {
	forge.PR
	task   string
	client *forgeClient
}

// findPull reads an open pull request of the project's repository. It refuses one of a fork or of a branch
// without a task: this program must not write to it.
func (t *Tasks) findPull(ctx context.Context, p *projects.Project, number int) (*taskPull, error) {
	if number <= 0 {
		return nil, Usagef("pull request %d: the number must be positive", number)
	}
	if p.Repo == "" {
		return nil, exiterr.New(workorder.ExitInvalid, fmt.Errorf("project %s has no repository, so that it has no pull requests", p.Name),
			"set repo in the project, or choose another project")
	}
	order := &workorder.Order{Repo: p.Repo, PR: cmp.Or(p.PR, &workorder.PullRequest{})}
	client, err := t.forge(ctx, order)
	if err != nil {
		return nil, err
	}
	pr, err := client.PRByNumber(ctx, number)
	if err != nil {
		return nil, client.fault(err)
	}
	id, err := tasks.TaskOfPR(&pr)
	if err != nil {
		return nil, err
	}
	return &taskPull{PR: pr, task: id, client: client}, nil
}

// findPull finds the task by its pull request, or the pull request by its task.
func (p *jobBuilder) findPull(ctx context.Context) (rec *taskstore.Record, err error) {
	if p.Pull == 0 && p.Feedback == nil {
		if rec, err = p.knownHere(ctx); err != nil {
			return nil, err
		}
	}
	pr, err := tasks.PRNumber(p.Task, rec, p.Pull, p.Feedback != nil)
	if err != nil {
		return nil, err
	}
	return p.taskOf(ctx, pr)
}

// taskOf finds the task by its id, or by its pull request if pr is not 0. The record is nil for a task that this
// state directory does not know.
func (p *jobBuilder) taskOf(ctx context.Context, pr int) (rec *taskstore.Record, err error) {
	if p.Task != "" {
		if rec, err = p.knownHere(ctx); err != nil {
			return nil, err
		}
	}
	if pr == 0 {
		return rec, nil
	}
	if rec != nil { // the record names its project
		if err := p.remember(rec); err != nil {
			return nil, err
		}
	}
	r, err := p.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if r.Untrusted != nil {
		return nil, r.Untrusted
	}
	if p.pull, err = p.t.findPull(ctx, r.Project, pr); err != nil {
		return nil, err
	}
	if task := p.pull.task; p.Task == "" {
		p.Task = task
	} else if p.Task != task {
		return nil, Usagef("pull request #%d is that of task %s, not of %s", pr, task, p.Task)
	}
	if rec == nil {
		return p.knownHere(ctx)
	}
	return rec, nil
}

// reachForge lets the box reach the forge of the task's pull request, even if the project's runs open none.
func (p *jobBuilder) reachForge(r *resolve.Resolved) {
	if p.pull == nil {
		return
	}
	pr := workorder.PullRequest{}
	if r.Project.PR != nil {
		pr = *r.Project.PR
	}
	if p.Rebase == nil || p.Rebase.Onto == "" {
		pr.Base = cmp.Or(pr.Base, p.pull.Base) // keep its base
	}
	r.Project.PR = &pr
}
