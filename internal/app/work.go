package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Work is a task, or a sandbox with a branch: what a command takes that shows or takes over commits.
type Work struct {
	env    *Env
	Task   *taskstore.Record // nil for a sandbox; collected if it has ended
	Branch *branch.Branch    // nil for a task
}

// Name returns the task's ID or the sandbox's name.
func (w *Work) Name() string {
	if w.Branch != nil {
		return w.Branch.Sandbox
	}
	return w.Task.TaskID
}

// Works finds tasks and sandboxes for commands that take either.
type Works struct{ *Env }

// Works returns the use cases of commands that take a task or a sandbox.
func (e *Env) Works() Works { return Works{e} }

// Find returns the task or sandbox that the arguments of a command name. Without a name it is the sandbox of
// SandboxVariable, or else the last task of the repository in the current directory, or a newer sandbox whose branch
// descends from HEAD. Several such sandboxes are a usage error. Outside of any repository it is the last task.
func (w Works) Find(ctx context.Context, args []string) (*Work, error) {
	name := w.Getenv(SandboxVariable)
	switch {
	case len(args) > 0:
		name = args[0]
	case name == "":
		return w.current(ctx)
	default:
		w.Say("note: " + SandboxVariable + " names " + name)
	}
	b, err := w.Branches().Find(ctx, name)
	if err == nil {
		return &Work{env: w.Env, Branch: b}, nil
	}
	if !errors.Is(err, branch.ErrNotFound) {
		return nil, err
	}
	return w.task(ctx, name)
}

// Task returns the task that the arguments of a command name, collected if it has ended. Without a name it is
// the last task of the repository in the current directory, and outside of any repository the last task.
func (w Works) Task(ctx context.Context, args []string) (*taskstore.Record, error) {
	id := ""
	if len(args) > 0 {
		id = args[0]
	} else {
		last, err := w.last(ctx, nil)
		if err != nil {
			return nil, err
		}
		id = last.TaskID
	}
	_, rec, err := w.Tasks().Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return w.Tasks().Collect(ctx, rec)
}

func (w Works) task(ctx context.Context, id string) (*Work, error) {
	rec, err := w.Task(ctx, []string{id})
	if unknown, ok := errors.AsType[*UnknownNameError](err); ok {
		unknown.kind = kindEither
	}
	if err != nil {
		return nil, err
	}
	return &Work{env: w.Env, Task: rec}, nil
}

func (w Works) current(ctx context.Context) (*Work, error) {
	task, terr := w.last(ctx, nil)
	if terr != nil && exiterr.Code(terr) != workorder.ExitNotFound {
		return nil, terr
	}
	since := time.Time{}
	if task != nil {
		since = task.CreatedAt
	}
	b, err := w.Branches().Current(ctx, since, func(*branch.Branch) bool { return true })
	switch {
	case err != nil:
		return nil, err
	case b != nil:
		w.Say("note: sandbox " + b.Sandbox + ", whose branch descends from the current checkout")
		return &Work{env: w.Env, Branch: b}, nil
	case terr != nil:
		return nil, terr
	}
	w.Say("note: task " + task.TaskID + ", the last one")
	return w.task(ctx, task.TaskID)
}

// continuable returns the ID of the task that is continued if none is named: the last one that can be. With a new text it can
// be done.
func (w Works) continuable(ctx context.Context, text string) (string, error) {
	rec, err := w.last(ctx, func(rec *taskstore.Record) bool {
		if !rec.Collected {
			if now, err := w.Tasks().Collect(ctx, rec); err == nil {
				rec = now
			}
		}
		return rec.Resumable() || text != "" && rec.Collected
	})
	if err != nil {
		return "", err
	}
	w.Say("note: task " + rec.TaskID + ", the last one that can continue")
	return rec.TaskID, nil
}

// last returns the newest task of the repository in the current directory, and outside of any repository the
// newest of all: a user who applies changes in one repository does not mean those of another. want, if non-nil, limits the choice.
func (w Works) last(ctx context.Context, want func(*taskstore.Record) bool) (*taskstore.Record, error) {
	st, err := w.Store()
	if err != nil {
		return nil, err
	}
	newest, err := st.List()
	if err != nil {
		return nil, err
	}
	if len(newest) == 0 {
		return nil, NotFound(errors.New("there are no tasks yet, and no sandbox's branch descends from the current checkout"),
			"start a task with: sandbox-agent \"fix the flaky test\", or name a sandbox of: sandbox-agent ps --sandboxes")
	}
	top, err := w.RepoRoot()
	if err != nil {
		return nil, err
	}
	some := false
	for _, rec := range newest {
		here := func(r workorder.OrderRepo) bool { return localrepo.BelongsTo(ctx, r.Repo, top) }
		own := workorder.OrderRepo{Repo: cmp.Or(rec.LocalRepo, rec.Repo)}
		if top != "" && !here(own) && !slices.ContainsFunc(outcome.FurtherRepos(rec), here) {
			continue
		}
		if some = true; want == nil || want(rec) {
			return rec, nil
		}
	}
	if some {
		return nil, NotFound(errors.New("no task can be continued"), "`sandbox-agent ps --all` lists the tasks of this machine")
	}
	of := cmp.Or(newest[0].LocalRepo, newest[0].Repo, "no repository")
	return nil, NotFound(fmt.Errorf("no task on this machine is of the repository %s", top),
		fmt.Sprintf("name a task: the last one is %s, of %s; `sandbox-agent ps --all` lists them", newest[0].TaskID, of))
}

// Open returns the repository of this machine that has the work. In a working tree of a task's further repository that is this one.
func (w *Work) Open(ctx context.Context) (*branch.Target, error) {
	if w.Branch != nil {
		return w.env.Branches().Handoff(ctx, w.Branch)
	}
	res, err := outcome.ReadResult(w.Task)
	if err != nil {
		return nil, err
	}
	dir, err := w.env.CurrentDir()
	if err != nil {
		return nil, err
	}
	src := branch.Source{
		Of: "task " + w.Name(), Branch: res.Branch, Repo: cmp.Or(w.Task.LocalRepo, w.Task.Repo), Base: res.BaseSHA, Head: res.HeadSHA,
	}
	top := localrepo.RepoRoot(dir)
	for _, r := range res.Repos {
		if top != "" && !localrepo.BelongsTo(ctx, src.Repo, top) && localrepo.BelongsTo(ctx, r.Repo, top) {
			src.Of += " in " + r.Name
			src.Branch, src.Repo, src.Base, src.Head = r.Branch, r.Repo, r.BaseSHA, r.HeadSHA
			break
		}
	}
	if filepath.IsAbs(src.Repo) && top != "" && localrepo.Same(ctx, top, src.Repo) { // another work tree of it
		src.Repo = top
	}
	return src.Target(ctx, dir)
}

// OpenHere is Open for a verb that changes the working tree that the user is in. A sandbox's uncommitted changes are
// committed first. If the sandbox is deleted afterwards, changes that cannot be committed are an error.
func (w *Work) OpenHere(ctx context.Context, verb string, deleted bool) (*branch.Target, error) {
	if w.Branch != nil {
		return w.env.Branches().SavedHandoff(ctx, verb, w.Branch, deleted)
	}
	if deleted {
		return nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("only sandboxes can be deleted here: %s is a task", w.Name()),
			"remove a task and its branch with: sandbox-agent rm --branch "+w.Name())
	}
	p, err := w.Open(ctx)
	if err == nil {
		err = w.env.Branches().CheckInTree(ctx, verb, w.Name(), p.Path(), workorder.BranchRef(p.Branch))
	}
	return p, err
}

// Commit is a commit with the commands whose changes it has.
type Commit = branch.Entry

// WorkLog has the commits of a task or sandbox, newest first.
type WorkLog struct {
	TaskID   string        `json:"task_id"`
	Branch   string        `json:"branch"`
	Base     string        `json:"base"`
	Head     string        `json:"head"`
	Commits  []Commit      `json:"commits"`
	Attempts []WorkAttempt `json:"attempts"` // empty for a sandbox
}

// WorkAttempt is an attempt of a task.
type WorkAttempt struct {
	Number     int               `json:"number"`
	Status     workorder.Status  `json:"status"`
	EndedBy    workorder.EndedBy `json:"ended_by"`
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Head       string            `json:"head,omitempty"` // empty if its output was removed
}

// Log returns the commits since the base, and a task's attempts, newest first.
func (w *Work) Log(ctx context.Context) (l WorkLog, err error) {
	if w.Branch != nil {
		l.Commits, err = w.Branch.Log(ctx)
		return l, err
	}
	p, err := w.Open(ctx)
	if err != nil {
		return l, err
	}
	l = WorkLog{TaskID: w.Name(), Branch: p.Branch, Base: p.Base, Head: p.Head, Attempts: attempts(w.Task)}
	l.Commits, err = p.Log(ctx)
	return l, err
}

// attempts returns the attempts of a task, newest first.
func attempts(rec *taskstore.Record) (rows []WorkAttempt) {
	for _, a := range slices.Backward(rec.Attempts()) {
		row := WorkAttempt{Number: a.Number, Status: a.Status, EndedBy: a.EndedBy, FinishedAt: a.FinishedAt}
		if past, err := rec.At(a.Number); err == nil {
			if res, err := outcome.ReadResult(past); err == nil {
				row.Head = res.HeadSHA
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Patch writes the commits since the base with their changes, newest first.
func (w *Work) Patch(ctx context.Context, out io.Writer) error {
	if w.Branch != nil {
		return w.Branch.Patch(ctx, out)
	}
	p, err := w.Open(ctx)
	if err != nil {
		return err
	}
	return p.Patch(ctx, out)
}

// MergeMessage returns the subject of the commit that merges the work.
func (w *Work) MergeMessage() string {
	if w.Branch != nil {
		return "Merge sandbox " + w.Name()
	}
	return "Merge task " + w.Name()
}
