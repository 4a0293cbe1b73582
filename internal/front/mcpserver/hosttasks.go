package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of the answers about a task.
const (
	taskLines   = 20
	taskLine    = 300     // bytes
	taskSummary = 4 << 10 // bytes
	taskList    = 20
)

// hostTasks are the tasks of this machine: what the commands `create --detach`, `logs` and `result` do.
type hostTasks struct {
	f   *cmdutil.Factory
	log *slog.Logger
}

// NewTasks returns the tasks of this machine.
func NewTasks(f *cmdutil.Factory, log *slog.Logger) Tasks { return &hostTasks{f, log} }

// Create starts a task as `create --detach` does.
func (t *hostTasks) Create(ctx context.Context, q TaskRequest) (TaskStarted, error) {
	if err := t.check(q); err != nil {
		return TaskStarted{}, err
	}
	said := text.NewHeadTail(taskSummary)
	f := t.f.With(cmdutil.IO{Stdout: io.Discard, Stderr: said})
	if q.Repo != "" {
		// The project of the server's directory has secrets and rules for its own repository, and none for one that an agent
		// names. Nor is a token sent there that is for no particular server.
		f.Getenv = func(name string) string {
			if name == app.EnvName("project") || name == credentials.GitToken {
				return ""
			}
			return t.f.Getenv(name)
		}
	}
	id, err := createDetached(ctx, f, q)
	notes := strings.TrimSpace(text.Clean(string(said.Bytes())))
	if end, ok := errors.AsType[*cmdutil.ExitError](err); ok { // it has said why
		err = fmt.Errorf("the task ended before it began, with %d: %s", end.Code, notes)
	}
	if err != nil {
		return TaskStarted{}, WrongCall(err)
	}
	t.log.Info("task", "id", id, "project", q.Project, "repo", q.Repo)
	return TaskStarted{ID: id, Follow: "sandbox-agent logs -f " + id, Notes: notes}, nil
}

// createDetached starts a task with the settings that the request or the environment gives.
func createDetached(ctx context.Context, f *cmdutil.Factory, q TaskRequest) (id string, err error) {
	given := map[string]string{"project": q.Project, "repo": q.Repo, "branch": q.Branch, "harness": q.Harness, "detach": "true"}
	maps.DeleteFunc(given, func(_, value string) bool { return value == "" })
	flags, err := app.TaskSettings(given, f.Getenv)
	if err != nil {
		return "", err
	}
	if q.Repo != "" {
		flags.ProjectSource = taskstore.Detected
	}
	out, err := f.TaskRuns(&flags, false).Create(ctx, app.TaskRequest{Request: tasks.Request{Text: q.Task}, Flags: flags})
	if err != nil || out.Result == nil {
		return out.Task, err
	}
	return out.Task, cmdutil.Ended(out.Result.Status, out.Result.EndedBy)
}

// check refuses what an agent must not choose: files of this machine, as projects or repositories, and a project's secrets
// for another repository.
func (t *hostTasks) check(q TaskRequest) error {
	if q.Project != "" && q.Repo != "" {
		return Wrongf("name a project or a repository: a project is for its own repository")
	}
	if q.Project != "" {
		opts, err := projects.SystemOptions()
		if err != nil {
			return err
		}
		if dir := t.f.Getenv(app.EnvName("projects-dir")); dir != "" {
			opts.Folders = append([]string{dir}, opts.Folders...)
		}
		isPath := func(n string) bool { return path.Ext(n) == ".yaml" || path.Ext(n) == ".yml" }
		names := slices.DeleteFunc(projects.Names(opts), isPath)
		if !slices.Contains(names, q.Project) {
			return Wrongf("unknown project %.80q; the user has: %s", q.Project, strings.Join(names[:min(len(names), taskList)], ", "))
		}
	}
	if q.Repo != "" {
		if kind, err := projects.RepoTransport(q.Repo); err != nil || kind == projects.TransportLocal {
			return Wrongf("repository %.200q: name the URL of one on a server; "+
				"one of this machine needs a project of the user's, or to be the current one", q.Repo)
		}
	}
	return nil
}

// find finds a task by its whole ID: a guess must not find another client's task.
func (t *hostTasks) find(ctx context.Context, id string) (*taskstore.Store, *taskstore.Record, error) {
	if !workorder.ValidTaskID(id) {
		return nil, nil, Wrongf("id %.40q: use one that task_create has answered, as T-A1B2C3D4", id)
	}
	st, rec, err := t.f.Tasks().Find(ctx, id)
	return st, rec, WrongCall(err)
}

// Status is a row of `ps`, with the end of `logs`.
func (t *hostTasks) Status(ctx context.Context, id string) (TaskStatus, error) {
	st, rec, err := t.find(ctx, id)
	if err != nil {
		return TaskStatus{}, err
	}
	row, engineErr := t.f.Tasks().State(ctx, st, rec)
	ended := slices.Contains(workorder.Statuses(), workorder.Status(row.Status))
	s := TaskStatus{ID: row.TaskID, State: row.Status, Step: row.Step, Ended: ended, Lines: []string{}}
	if engineErr != nil {
		return s, WrongCall(engineErr)
	}
	lines := text.WholeLines(taskLine, func(line []byte) {
		s.Lines = append(s.Lines, text.Clean(string(line)))
		s.Lines = s.Lines[max(0, len(s.Lines)-taskLines):]
	})
	view := t.f.NewView(lines, false)
	defer view.Close()
	err = t.f.Tasks().Replay(ctx, st, rec, view.Event)
	lines.Close()
	return s, WrongCall(err)
}

// Result is what `result` shows, shortened. It collects what has ended.
func (t *hostTasks) Result(ctx context.Context, id string) (TaskResult, error) {
	_, rec, err := t.find(ctx, id)
	if err == nil {
		rec, err = t.f.Tasks().Collect(ctx, rec)
	}
	if err != nil {
		return TaskResult{}, WrongCall(err)
	}
	r, err := outcome.ReadResult(rec)
	if err != nil {
		return TaskResult{}, WrongCall(err)
	}
	return essentials(r, rec.Dir), nil
}

// essentials are what a model needs of a result: lists are cut, all of it is in the directory.
func essentials(r *workorder.Result, dir string) TaskResult {
	s := TaskResult{
		ID: r.TaskID, Status: string(r.Status), Reason: text.Cut(text.Clean(r.Reasons.String()), taskSummary),
		Branch: r.Branch, Head: r.HeadSHA, Pushed: r.Pushed,
		Summary: text.Cut(text.Clean(r.Agent.Final), taskSummary), CostUSD: r.Usage.CostUSD, Folder: dir, Next: r.NextCommand,
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
