package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskJob makes the jobs of a command that names its task. It uses the flags, the project, and the flags of
// earlier commands.
type taskJob struct {
	a        *App
	o        *runOptions
	find     *credentials.Finder
	asked    tasks.Asked
	feedback tasks.FeedbackFile
	rebase   *workorder.Rebase // nil if there is nothing to rebase
	title    string            // the task in its own words, if its text has more; empty if it is the text
	pull     *taskPull         // the task's pull request; nil if it was not asked for
	boxes    *boxes
	r        *resolve.Resolved // set when the project was loaded
}

func (a *App) newTaskJob(o *runOptions, asked tasks.Asked) *taskJob {
	find := credentials.New(a.Getenv)
	asked.DryRun = o.dryRun
	return &taskJob{a: a, o: o, find: find, asked: asked, boxes: &boxes{a: a, find: find, json: o.json, detach: o.detach}}
}

// run carries out the request and prints the outcome. rec is nil for a task that is not known here.
func (p *taskJob) run(ctx context.Context, st *store.Store, rec *store.Record) error {
	p.asked.Task = p.o.taskID
	if !p.asked.DryRun && !p.asked.OnlyNew() {
		if err := p.boxes.open(); err != nil {
			return err
		}
	}
	flow := &tasks.Flow{Store: st, Boxes: p.boxes, Project: p, Detach: p.o.detach, Patience: p.a.patience, Waits: func(a tasks.Action) { sayWait(p.a, p.asked.Task, a) }}
	out, err := flow.Run(ctx, tasks.State{Asked: p.asked, Record: rec})
	return p.answer(ctx, out, err)
}

// New makes the job of a new task. If it fails, there is no task.
func (p *taskJob) New(ctx context.Context, s tasks.State, next tasks.Attempt) (_ *job.Job, err error) {
	if p.r, err = p.o.resolve(ctx, p.a); err == nil {
		if !p.o.json || s.DryRun {
			showFound(p.a.Stderr, p.r.Found, s.DryRun)
		}
		err = p.r.FromBase(ctx)
	}
	if err == nil {
		err = p.order(ctx, s, next)
	}
	if err == nil {
		err = p.r.TargetFree(ctx)
	}
	if err == nil && !s.DryRun {
		if err = p.r.FindSecrets(ctx, p.find); err == nil {
			err = p.boxes.open()
		}
	}
	if err != nil {
		return nil, err
	}
	return p.r.Job, nil
}

// order makes the job of the next attempt's description.
func (p *taskJob) order(ctx context.Context, s tasks.State, next tasks.Attempt) error {
	in := projects.OrderInput{TaskID: s.Task, Task: next.Text, Mode: next.Mode, TargetBranch: next.Branch, Rebase: p.rebase}
	if s.Remote != nil {
		in.Review = s.Remote.Review
	}
	if dir := p.r.Project.Dir; p.r.Local != nil {
		in.Author = localrepo.Author(ctx, p.r.Local.Path)
	} else {
		in.Author = localrepo.Author(ctx, dir)
	}
	if in.TargetBranch == "" && p.title != "" {
		in.TargetBranch = workorder.Branch(in.TaskID, p.title)
	}
	if err := p.r.Order(in); err != nil {
		return err
	}
	p.r.Job.Title = p.title
	if s.IfExists { // the box may find more on the remote: another machine may have been faster
		p.r.Job.Order.IfExists = workorder.ExistsTell
	}
	return nil
}

// Ask loads the project and asks its remote about the task.
func (p *taskJob) Ask(ctx context.Context, s tasks.State) *tasks.Remote {
	on, err := p.ask(ctx, s)
	if err != nil {
		return &tasks.Remote{Err: err}
	}
	on.Repo = credentials.Redacted(p.r.Project.Repo)
	return on
}

func (p *taskJob) ask(ctx context.Context, s tasks.State) (on *tasks.Remote, err error) {
	if s.Record != nil {
		if err := p.remember(s.Record); err != nil {
			return nil, err
		}
	}
	if p.r, err = p.resolve(ctx); err != nil {
		return nil, err
	}
	if s.DryRun && s.Record != nil && s.Verb != tasks.Revise && s.Verb != tasks.Rebase {
		p.r.Job = &job.Job{}
		return &tasks.Remote{Known: p.r.Project.Repo != ""}, nil // a rehearsal does not ask
	}
	if p.r.Untrusted != nil {
		return nil, p.r.Untrusted // a rehearsal asks the remote, too, whose address the project sets
	}
	p.reachForge(p.r)
	if s.Record != nil {
		err = p.r.Lacks()
	}
	if err = cmp.Or(err, p.credentials(ctx, p.r)); err != nil {
		return nil, err
	}
	if on, err = p.askRemote(ctx, s.Task); err != nil || !on.Known {
		return on, err
	}
	if err := p.r.Lacks(); err != nil { // not before it is known that there is such a task
		return nil, err
	}
	if s.Verb != tasks.Revise {
		return on, nil
	}
	if p.pull == nil {
		return on, on.ReadReview(ctx, nil, nil, p.feedback)
	}
	return on, p.pull.client.fault(on.ReadReview(ctx, p.pull.client, &p.pull.PR, p.feedback))
}

func (p *taskJob) askRemote(ctx context.Context, id string) (*tasks.Remote, error) {
	switch r := p.r; {
	case r.Project.Repo == "":
		return &tasks.Remote{}, nil
	case r.Local != nil:
		return tasks.Ask(ctx, r.Local, id)
	default:
		return tasks.Ask(ctx, served{p.find, r.Project.Repo, r.Job.Git}, id)
	}
}

// served is a repository on a server.
type served struct {
	find *credentials.Finder
	repo string
	cred *workorder.GitCredential
}

func (s served) TaskRefs(ctx context.Context, id string) ([]string, error) {
	return s.find.TaskRefs(ctx, s.repo, id, s.cred)
}

func (s served) State(ctx context.Context, id string) (*workorder.State, error) {
	return s.find.State(ctx, s.repo, id, s.cred)
}

// credentials prepares secrets for a job that is made later.
func (p *taskJob) credentials(ctx context.Context, r *resolve.Resolved) error {
	r.Job = &job.Job{Order: workorder.Order{Repo: r.Project.Repo, CloneURL: r.Project.Repo, PR: r.Project.PR}}
	return r.FindCredentials(ctx, p.find)
}

// Job makes the job of a next attempt, with the credentials that the remote was asked with.
func (p *taskJob) Job(ctx context.Context, s tasks.State, next tasks.Action) (*job.Job, error) {
	t := next.Attempt
	_, given := p.o.sources["branch"]
	if p.r.Found != nil && !given && p.o.taskBase == "" && t.Base != "" {
		// The remote named the base branch. Another branch may be checked out here, and its files make another project.
		if err := p.detectAgain(ctx, t.Base); err != nil {
			return nil, err
		}
	}
	r := p.r
	// The remote of a served repository is gone, and the work on it too.
	if !given && (next.Do == tasks.GoOn || r.Local != nil) {
		r.Project.Branch = cmp.Or(t.Base, r.Project.Branch)
	}
	if next.Do == tasks.BeginAgain {
		if err := r.FromBase(ctx); err != nil {
			return nil, err
		}
	}
	was := r.Job
	if err := p.order(ctx, s, t); err != nil {
		return nil, err
	}
	r.Job.Secrets, r.Job.Git, r.Job.ForgeToken, r.Job.App = was.Secrets, was.Git, was.ForgeToken, was.App
	return r.Job, nil
}

// detectAgain makes the project of the files of a branch, with the credentials that it needs.
func (p *taskJob) detectAgain(ctx context.Context, base string) (err error) {
	p.o.taskBase = base
	if p.r, err = p.resolve(ctx); err != nil {
		return err
	}
	p.reachForge(p.r)
	return cmp.Or(p.r.Lacks(), p.credentials(ctx, p.r))
}

// remember takes the settings of the last attempt that this command does not give.
func (p *taskJob) remember(rec *store.Record) error {
	o := p.o
	said, err := o.said()
	if err != nil {
		return err
	}
	was, err := tasks.Remember(p.asked.Verb, rec, said)
	if err != nil {
		return err
	}
	if was.ProjectFile == "" {
		o.projectBy = was.ProjectBy
	} else {
		o.project, o.projectBy = was.ProjectFile, cmp.Or(was.ProjectBy, resolve.Unsaid)
		if _, err := os.Stat(o.project); filepath.IsAbs(o.project) && err != nil {
			return fault.New(workorder.ExitNoProject, fmt.Errorf("read the project file of task %s: %w", rec.TaskID, err), tasks.GiveProject)
		}
	}
	o.taskBase = rec.Branch
	o.inherit(was.Overrides)
	return nil
}

// said are the settings that the flags give.
func (o *runOptions) said() (tasks.Said, error) {
	s := tasks.Said{Given: o.sources, Network: o.network}
	if o.out == "" {
		return s, nil
	}
	var err error
	if s.Out, err = filepath.Abs(o.out); err != nil {
		return s, fmt.Errorf("find output folder: %w", err)
	}
	return s, nil
}

// inherit sets flags to the values of an earlier command.
func (o *runOptions) inherit(was map[string]string) {
	values := o.overrides()
	for flag, value := range was {
		if values[flag] != nil {
			*values[flag], o.sources[flag] = value, "--"+flag+" (given before)"
		}
	}
}
