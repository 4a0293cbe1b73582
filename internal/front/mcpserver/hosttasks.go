package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of the answers about a task.
const (
	taskLines   = 20
	taskLine    = 300     // bytes
	taskSummary = 4 << 10 // bytes
	taskList    = 20
)

// hostTasks are the tasks of this machine.
type hostTasks struct {
	env *app.Env
	log *slog.Logger
}

// NewTasks returns the tasks of this machine.
func NewTasks(env *app.Env, log *slog.Logger) Tasks { return &hostTasks{env, log} }

// Create starts a task, which goes on without this program.
func (t *hostTasks) Create(ctx context.Context, q TaskRequest) (TaskStarted, error) {
	said := text.NewHeadTail(taskSummary)
	env := *t.env
	env.Note = func(line string) { fmt.Fprintln(said, text.Clean(line)) }
	run := &app.Tasks{Env: &env}
	run.Show = func(_ context.Context, start *app.AttemptStart) (func(workorder.Event), func()) {
		for _, line := range start.Notes {
			env.Say(line)
		}
		return func(workorder.Event) {}, func() {}
	}
	run.Found = func(found app.Findings) {
		env.Say("no project file; found in the repository:")
		for _, f := range found.Findings {
			env.Say(f.String())
		}
		if !found.HasCheck {
			env.Warn("no check was found: nothing will judge the agent's work")
		}
	}
	id, err := run.CreateFor(ctx, app.AgentTask{Text: q.Task, Project: q.Project, Repo: q.Repo, Branch: q.Branch, Harness: q.Harness})
	if err != nil {
		return TaskStarted{}, WrongCall(err)
	}
	t.log.Info("task", "id", id, "project", q.Project, "repo", q.Repo)
	return TaskStarted{ID: id, Follow: "sandbox-agent logs -f " + id, Notes: strings.TrimSpace(string(said.Bytes()))}, nil
}

// checkID accepts only a whole ID: a guess must not find another client's task.
func checkID(id string) error {
	if !workorder.ValidTaskID(id) {
		return Wrongf("id %.40q: use one that task_create has answered, as T-A1B2C3D4", id)
	}
	return nil
}

// Status says how a task is, with the last lines of its log.
func (t *hostTasks) Status(ctx context.Context, id string) (TaskStatus, error) {
	if err := checkID(id); err != nil {
		return TaskStatus{}, err
	}
	rec, err := t.env.Tasks().RecordedAttempt(ctx, id, 0)
	if err != nil {
		return TaskStatus{}, WrongCall(err)
	}
	row, engineErr := t.env.Tasks().State(ctx, rec)
	ended := slices.Contains(workorder.Statuses(), workorder.Status(row.Status))
	s := TaskStatus{ID: row.TaskID, State: row.Status, Step: row.Step, Ended: ended, Lines: []string{}}
	if engineErr != nil {
		return s, WrongCall(engineErr)
	}
	lines := text.WholeLines(taskLine, func(line []byte) {
		s.Lines = append(s.Lines, text.Clean(string(line)))
		s.Lines = s.Lines[max(0, len(s.Lines)-taskLines):]
	})
	log := render.New(render.Plain, lines, render.Options{})
	defer log.Close()
	err = t.env.Tasks().Replay(ctx, rec, log.Event)
	lines.Close()
	return s, WrongCall(err)
}

// Result returns the essentials of a task's result. It collects what has ended.
func (t *hostTasks) Result(ctx context.Context, id string) (TaskResult, error) {
	if err := checkID(id); err != nil {
		return TaskResult{}, err
	}
	rec, err := t.env.Tasks().Attempt(ctx, id, 0)
	if err != nil {
		return TaskResult{}, WrongCall(err)
	}
	r, _, err := app.ReadResult(rec)
	if err != nil {
		return TaskResult{}, WrongCall(err)
	}
	return essentials(r.Result, r.Dir), nil
}

// essentials are what a model needs of a result: lists are cut, all of it is in the directory.
func essentials(r *workorder.Result, dir string) TaskResult {
	s := TaskResult{
		ID: r.TaskID, Status: string(r.Status), Reason: text.Cut(text.Clean(r.Reasons.String()), taskSummary),
		Branch: r.Branch, Head: r.HeadSHA, Pushed: r.Pushed,
		Summary: text.Cut(text.Clean(r.Agent.Final), taskSummary), CostUSD: r.Usage.CostUSD, Dir: dir, Next: r.NextCommand,
		Commits: []string{}, Checks: []TaskCheck{}, Evidence: []string{},
	}
	if r.PR != nil {
		s.PullRequest = r.PR.URL
	}
	for _, c := range r.Commits[:min(len(r.Commits), taskList)] {
		s.Commits = append(s.Commits, text.Cut(text.Clean(c.Subject), taskLine))
	}
	for _, v := range r.Validation[:min(len(r.Validation), taskList)] {
		c := TaskCheck{Name: v.Name, Passed: v.Passed}
		if r.Proof != nil {
			if i := slices.IndexFunc(r.Proof.Checks, func(p workorder.CheckProof) bool { return p.Name == v.Name }); i >= 0 {
				c.Transition = string(r.Proof.Checks[i].Transition)
			}
		}
		s.Checks = append(s.Checks, c)
	}
	if r.Proof != nil {
		for _, f := range r.Proof.TestFindings[:min(len(r.Proof.TestFindings), taskList)] {
			s.Flags = append(s.Flags, strings.TrimSpace(f.Kind+" "+text.Clean(f.Path)))
		}
	}
	for _, e := range r.Evidence[:min(len(r.Evidence), taskList)] {
		s.Evidence = append(s.Evidence, e.Path)
	}
	return s
}
