package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What continue, revise and rebase share: they go on with a task that is named by its id or its pull request.

// taskArg takes the task's id, and where in says so "-" for a text on standard input.
func (o *createOptions) taskArg(cmd *cobra.Command, args []string, in bool) error {
	for _, arg := range args {
		switch {
		case in && arg == "-":
			o.in = true
		case o.named == "":
			o.named = arg
		default:
			return oneTask(cmd, args)
		}
	}
	return nil
}

// readTask is read for a command that goes on with a task.
func (o *createOptions) readTask(f *pflag.FlagSet, getenv func(string) string) error {
	if err := o.read(f, getenv); err != nil {
		return err
	}
	if o.named != "" && o.taskID != "" && o.named != o.taskID {
		return usage("give the task once: %s or --task-id %s", o.named, o.taskID)
	}
	o.taskID = cmp.Or(o.taskID, o.named)
	return nil
}

// knownHere is the record of the task, nil where only the remote may know it; its id is the full one then.
func (p *taskJob) knownHere(ctx context.Context) (*store.Record, error) {
	st, rec, err := p.a.task(ctx, p.o.taskID)
	if err == nil {
		p.o.taskID = rec.TaskID
		return rec, nil
	}
	if full := fullID(p.o.taskID); st != nil && fault.Code(err) == workorder.ExitNotFound && workorder.ValidTaskID(full) {
		p.o.taskID = full
		return nil, nil
	}
	return nil, err
}

// ground is loadGround, for a task that only the project's remote can know where no record names a project.
func (p *taskJob) ground(ctx context.Context) (*resolved, error) {
	r, err := p.a.loadGround(ctx, p.o)
	if _, none := errors.AsType[*projects.NotFoundError](err); none && p.asked.Verb != tasks.Create && p.o.taskID != "" && p.o.project == "" {
		return nil, unknownHere(p.o.taskID, "its project: --project P")
	}
	return r, err
}

// unknownHere says of a task what it takes to find it elsewhere.
func unknownHere(id, give string) error {
	return fault.New(workorder.ExitNotFound, fmt.Errorf("task %s is not known on this machine", id),
		"`sandbox-agent ps --all` lists the tasks of this machine; if another one began it, give "+give)
}

// taskOf finds the task by its id, or by its pull request where pr is not 0. The record is nil for a task that this
// state folder does not know.
func (p *taskJob) taskOf(ctx context.Context, pr int) (rec *store.Record, err error) {
	if p.o.taskID != "" {
		if rec, err = p.knownHere(ctx); err != nil {
			return nil, err
		}
	}
	if pr == 0 {
		return rec, nil
	}
	if rec != nil { // its project is known then
		if err := p.remember(rec); err != nil {
			return nil, err
		}
	}
	r, err := p.ground(ctx)
	if err != nil {
		return nil, err
	}
	if r.untrusted != nil {
		return nil, r.untrusted
	}
	if p.pull, err = p.a.taskPull(ctx, r.project, pr); err != nil {
		return nil, err
	}
	if task := p.pull.task; p.o.taskID == "" {
		p.o.taskID = task
	} else if p.o.taskID != task {
		return nil, usage("pull request #%d is that of task %s, not of %s", pr, task, p.o.taskID)
	}
	if rec == nil {
		return p.knownHere(ctx)
	}
	return rec, nil
}

// itsBranch refuses a branch that cannot be the task's.
func (p *taskJob) itsBranch() error {
	if id, branch := p.o.taskID, p.asked.Branch; branch != "" && !workorder.OwnBranch(id, branch) {
		return usage("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", branch, id, id)
	}
	return nil
}

// reachForge makes the box reach the forge of the task's pull request, also where the project's runs open none.
func (p *taskJob) reachForge(r *resolved) {
	if p.pull == nil {
		return
	}
	pr := workorder.PullRequest{}
	if r.project.PR != nil {
		pr = *r.project.PR
	}
	if p.rebase == nil || p.rebase.Onto == "" {
		pr.Base = cmp.Or(pr.Base, p.pull.Base) // it stays where it is
	}
	r.project.PR = &pr
}

// runKnown is run for a task that was looked for.
func (p *taskJob) runKnown(ctx context.Context, rec *store.Record, err error) error {
	if err == nil {
		err = p.itsBranch()
	}
	if err != nil {
		return err
	}
	st, err := p.a.store()
	if err != nil {
		return err
	}
	return p.run(ctx, st, rec)
}
