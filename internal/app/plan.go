package app

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

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// PlanTask returns the text of a task that carries out the plan of the task id, and the words of that task. more may
// be empty. The plan's project and restrictions become flags.
func (t *Tasks) PlanTask(ctx context.Context, flags *resolve.Flags, id, more string) (text, title string, err error) {
	task, plan, err := t.findPlan(ctx, flags, id)
	if err != nil {
		return "", "", err
	}
	text = plannedText(task, plan, more)
	if len(text) > workorder.MaxTask {
		return "", "", Usagef("task and plan of %s have more than %d bytes together", id, workorder.MaxTask)
	}
	return text, task, nil
}

// findPlan looks for a plan in the state directory, and on the project's remote if that does not know the task.
func (t *Tasks) findPlan(ctx context.Context, flags *resolve.Flags, id string) (task, plan string, err error) {
	st, rec, err := t.Find(ctx, id)
	switch full := FullTaskID(id); {
	case err == nil:
		return localPlan(ctx, t, flags, rec)
	case st == nil || exiterr.Code(err) != workorder.ExitNotFound || !workorder.ValidTaskID(full):
		return "", "", err
	default:
		return t.newJob(TaskRequest{Request: tasks.Request{Verb: tasks.Continue, Task: full}, Flags: *flags}).remotePlan(ctx)
	}
}

func localPlan(ctx context.Context, t *Tasks, flags *resolve.Flags, rec *taskstore.Record) (task, plan string, err error) {
	if rec, err = t.Collect(ctx, rec); err != nil {
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
	if _, given := flags.Sources["project"]; !given {
		switch was := rec.Request; {
		case was.ProjectBy == taskstore.Detected:
			flags.ProjectSource = taskstore.Detected
		case was.ProjectFile != "":
			flags.Project, flags.ProjectSource = was.ProjectFile, cmp.Or(was.ProjectBy, resolve.Unsaid)
			flags.Sources["project"] = "the plan " + rec.TaskID
		}
	}
	// The plan's restrictions also hold for the task that carries it out.
	inherit(flags, tasks.Overrides(rec.Request.Overrides, said(flags)))
	return task, plan, nil
}

// savedPlan is the plan in the task's directory, which the user may have edited.
func savedPlan(dir string) (string, error) {
	path := filepath.Join(dir, workorder.PlanFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", exiterr.New(workorder.ExitNotFound, fmt.Errorf("read the plan: %w", err), "make it again with `sandbox-agent create --plan`")
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
		return "", Usagef("the plan %s has more than %d bytes", path, workorder.MaxPlan)
	case !utf8.Valid(b) || slices.Contains(b, 0):
		return "", Usagef("the plan %s is not text: it must be UTF-8 without NUL bytes", path)
	case strings.TrimSpace(string(b)) == "":
		return "", Usagef("the plan %s is empty", path)
	}
	return forge.StripPlain(string(b)), nil
}

func (p *jobBuilder) remotePlan(ctx context.Context) (task, plan string, err error) {
	s := tasks.State{Request: p.Request}
	s.Remote = p.Ask(ctx, s)
	switch on := s.Remote; {
	case on.Err != nil:
		return "", "", on.Err
	case !on.Known:
		return "", "", s.Refuse(tasks.RefusalUnknown)
	case on.State == nil:
		return "", "", noPlan(p.Task, "its state cannot be read")
	}
	for _, at := range slices.Backward(s.Remote.State.Attempts) {
		if at.Plan != "" {
			plan := forge.StripPlain(at.Plan)
			p.t.Say(fmt.Sprintf("the plan of %s, as %s has it:\n\n%s\n", p.Task, text.Clean(s.Remote.Repo), text.Clean(plan)))
			return s.Remote.State.Task, plan, nil
		}
	}
	return "", "", noPlan(p.Task, "")
}

func noPlan(id, status string) error {
	if status != "" {
		status = " (" + status + ")"
	}
	return exiterr.New(workorder.ExitUsage, fmt.Errorf("task %s has no plan%s", id, status), "`sandbox-agent create --plan` makes one")
}

// plannedText is the task of an agent that carries out a plan which a person has read.
func plannedText(task, plan, more string) string {
	text := strings.TrimRight(task, "\n") +
		"\n\n# The plan\n\nThis plan was made for the task above, and approved. Follow it. " +
		"Where the code turns out different from what the " +
		"plan takes it for, do what the task needs, and say in the commit's message where you left the plan.\n\n" +
		strings.TrimSpace(plan) + "\n"
	if more != "" {
		text += "\n# What the user adds\n\nWhere it differs from the above, this counts.\n\n" + more
	}
	return text
}
