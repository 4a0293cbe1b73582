package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nextOptions are the flags of a command that continues a task, which is named by its id or its pull request.
type nextOptions struct {
	run          runOptions
	targetBranch string
	now, wait    bool
	pr           int
}

// flags are those of every run, worded for an existing task, and the task's branch.
func (o *nextOptions) flags(a *App, cmd *cobra.Command) {
	o.run.flags(a, cmd)
	f := cmd.Flags()
	f.Lookup("task-id").Usage = "id of the task, as TASK"
	f.StringVar(&o.targetBranch, "target-branch", "", "branch of the task (default: found on the remote)")
}

// moreFlags are those of a command that can add to the task and wait for a provider's limit.
func (o *nextOptions) moreFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Lookup("task").Usage = "text to add to the task; - is standard input"
	f.Lookup("task-file").Usage = "read the text to add from a file; - is standard input"
	f.BoolVar(&o.wait, "wait", false, "wait until a parked task can resume")
	f.BoolVar(&o.now, "now", false, "resume a parked task before its limit resets")
}

func (o *nextOptions) job(ctx context.Context, a *App, verb tasks.Verb) (*taskJob, error) {
	p := a.newTaskJob(&o.run, tasks.Asked{Verb: verb, Now: o.now, Wait: o.wait, Branch: o.targetBranch})
	if o.now && o.wait {
		return nil, usage("give --now or --wait, not both")
	}
	if !o.run.text.given() {
		return p, nil
	}
	var err error
	p.asked.Text, err = o.run.taskText(ctx, a)
	return p, err
}

// taskArg takes the task's id, and with in also "-" for a text on standard input.
func (o *nextOptions) taskArg(cmd *cobra.Command, args []string, in bool) error {
	for _, arg := range args {
		switch {
		case in && arg == "-":
			o.run.text.in = true
		case o.run.named == "":
			o.run.named = arg
		default:
			return oneTask(cmd, args)
		}
	}
	return nil
}

// read is runOptions.read for a command that continues a task.
func (o *nextOptions) read(f *pflag.FlagSet, getenv func(string) string) error {
	run := &o.run
	if err := run.read(f, getenv); err != nil {
		return err
	}
	if f.Changed("pr") && o.pr <= 0 {
		return usage("--pr %d is no pull request's number", o.pr)
	}
	if run.named != "" && run.taskID != "" && run.named != run.taskID {
		return usage("give the task once: %s or --task-id %s", run.named, run.taskID)
	}
	run.taskID = cmp.Or(run.taskID, run.named)
	return nil
}

// knownHere is the record of the task, whose id it completes. It is nil if only the remote may know the task.
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

// resolve is runOptions.resolve. If no record names a project, it looks for the task on the project's remote.
func (p *taskJob) resolve(ctx context.Context) (*resolve.Resolved, error) {
	r, err := p.o.resolve(ctx, p.a)
	if _, none := errors.AsType[*projects.NotFoundError](err); none && p.asked.Verb != tasks.Create && p.o.taskID != "" && p.o.project == "" {
		return nil, tasks.UnknownHere(p.o.taskID, "its project: --project P, or without a project file its repository: --repo R")
	}
	return r, err
}

// taskOf finds the task by its id, or by its pull request if pr is not 0. The record is nil for a task that this
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
	if p.pull, err = findTaskPull(ctx, p.a, r.Project, pr); err != nil {
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

// reachForge lets the box reach the forge of the task's pull request, even if the project's runs open none.
func (p *taskJob) reachForge(r *resolve.Resolved) {
	if p.pull == nil {
		return
	}
	pr := workorder.PullRequest{}
	if r.Project.PR != nil {
		pr = *r.Project.PR
	}
	if p.rebase == nil || p.rebase.Onto == "" {
		pr.Base = cmp.Or(pr.Base, p.pull.Base) // keep its base
	}
	r.Project.PR = &pr
}

// runKnown is run after the look-up of a task.
func (p *taskJob) runKnown(ctx context.Context, rec *store.Record, err error) error {
	if err == nil {
		p.asked.Task = p.o.taskID
		err = p.asked.CheckBranch()
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
