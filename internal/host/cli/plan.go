package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// task is the text of a new task: the given one, or that of a plan to carry out.
func (o *createOptions) task(ctx context.Context, a *App) (string, error) {
	if o.fromPlan == "" {
		return o.run.taskText(ctx, a)
	}
	if o.run.text.issue != 0 {
		return "", usage("give --issue or --from-plan, not both: the plan has its task")
	}
	more := ""
	if o.run.text.given() {
		var err error
		if more, err = o.run.taskText(ctx, a); err != nil {
			return "", err
		}
	}
	task, plan, err := o.findPlan(ctx, a)
	if err != nil {
		return "", err
	}
	o.title = task // branch and list take their names from the task, not from the plan
	text := plannedText(task, plan, more)
	if len(text) > workorder.MaxTask {
		return "", usage("task and plan of %s have more than %d bytes together", o.fromPlan, workorder.MaxTask)
	}
	return text, nil
}

// findPlan looks for a plan in the state folder, and on the project's remote if that does not know the task.
func (o *createOptions) findPlan(ctx context.Context, a *App) (task, plan string, err error) {
	st, rec, err := a.task(ctx, o.fromPlan)
	switch full := fullID(o.fromPlan); {
	case err == nil:
		return o.run.localPlan(ctx, a, st, rec)
	case st == nil || fault.Code(err) != workorder.ExitNotFound || !workorder.ValidTaskID(full):
		return "", "", err
	default:
		of := o.run
		of.taskID = full
		return a.newTaskJob(&of, tasks.Asked{Verb: tasks.Continue, Task: full}).remotePlan(ctx)
	}
}

func (o *runOptions) localPlan(ctx context.Context, a *App, st *store.Store, rec *store.Record) (task, plan string, err error) {
	if rec, err = a.collect(ctx, st, rec); err != nil {
		return "", "", err
	}
	if rec.Status != workorder.StatusPlanned {
		return "", "", noPlan(rec.TaskID, string(rec.Status))
	}
	if task, err = outcome.TaskText(rec); err != nil {
		return "", "", err
	}
	if plan, err = savedPlan(rec.Dir); err != nil {
		return "", "", err
	}
	if _, given := o.sources["project"]; !given {
		switch was := rec.Request; {
		case was.ProjectBy == store.Detected:
			o.projectBy = store.Detected
		case was.ProjectFile != "":
			o.project, o.projectBy = was.ProjectFile, cmp.Or(was.ProjectBy, resolve.Unsaid)
			o.sources["project"] = "the plan " + rec.TaskID
		}
	}
	o.inherit(tasks.Overrides(rec.Request.Overrides, tasks.Said{Given: o.sources, Network: o.network})) // the plan's restrictions also hold for the task that carries it out
	return task, plan, nil
}

// savedPlan is the plan in the task's folder, which the user may have edited.
func savedPlan(dir string) (string, error) {
	path := filepath.Join(dir, workorder.PlanFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(workorder.ExitNotFound, fmt.Errorf("read the plan: %w", err), "make it again with `sandbox-agent create --plan`")
	}
	if err != nil {
		return "", fmt.Errorf("read the plan: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, workorder.MaxPlan+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the plan %s: %w", path, err)
	case len(b) > workorder.MaxPlan:
		return "", usage("the plan %s has more than %d bytes", path, workorder.MaxPlan)
	case !utf8.Valid(b) || slices.Contains(b, 0):
		return "", usage("the plan %s is not text: it must be UTF-8 without NUL bytes", path)
	case strings.TrimSpace(string(b)) == "":
		return "", usage("the plan %s is empty", path)
	}
	return forge.StripPlain(string(b)), nil
}

func (p *taskJob) remotePlan(ctx context.Context) (task, plan string, err error) {
	s := tasks.State{Asked: p.asked}
	s.Remote = p.Ask(ctx, s)
	switch on := s.Remote; {
	case on.Err != nil:
		return "", "", on.Err
	case !on.Known:
		return "", "", s.Refuse(tasks.Unknown)
	case on.State == nil:
		return "", "", noPlan(p.o.taskID, "its state cannot be read")
	}
	for _, at := range slices.Backward(s.Remote.State.Attempts) {
		if at.Plan != "" {
			plan := forge.StripPlain(at.Plan)
			fmt.Fprintf(p.a.Stderr, "the plan of %s, as %s has it:\n\n%s\n\n", p.o.taskID, text.Clean(s.Remote.Repo), text.Clean(plan))
			return s.Remote.State.Task, plan, nil
		}
	}
	return "", "", noPlan(p.o.taskID, "")
}

func noPlan(id, status string) error {
	if status != "" {
		status = " (" + status + ")"
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("task %s has no plan%s", id, status), "`sandbox-agent create --plan` makes one")
}

// plannedText is the task of an agent that carries out a plan which a person has read.
func plannedText(task, plan, more string) string {
	text := strings.TrimRight(task, "\n") +
		"\n\n# The plan\n\nThis plan was made for the task above, and approved. Follow it. Where the code turns out different from what the plan takes it for, do what the task needs, and say in the commit's message where you left the plan.\n\n" +
		strings.TrimSpace(plan) + "\n"
	if more != "" {
		text += "\n# What the user adds\n\nWhere it differs from the above, this counts.\n\n" + more
	}
	return text
}
