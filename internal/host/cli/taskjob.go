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
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskJob makes the jobs of a command that names its task: of the flags, of the project, and of what an earlier
// command said.
type taskJob struct {
	a        *App
	o        *runOptions
	find     *credentials.Finder
	asked    tasks.Asked
	feedback tasks.FeedbackFile
	rebase   *workorder.Rebase // nil means nothing is to be rebased
	title    string            // the task in its own words, where its text has more; empty means the text
	pull     *taskPull         // the task's pull request; nil means it was not asked for
	boxes    *boxes
	r        *resolved // once the project was loaded
}

func (a *App) newTaskJob(o *runOptions, asked tasks.Asked) *taskJob {
	find := credentials.New(a.Getenv)
	asked.DryRun = o.dryRun
	return &taskJob{a: a, o: o, find: find, asked: asked, boxes: &boxes{a: a, find: find, json: o.json, detach: o.detach}}
}

// run does what is asked for, and says how it went. rec is nil for a task that is not known here.
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

// New makes the job of a task that nobody knows. Where it cannot, the reason is kept as the task's result.
func (p *taskJob) New(ctx context.Context, s tasks.State, next tasks.Attempt) (_ *job.Job, err error) {
	if p.r, err = p.o.ground(ctx, p.a); err == nil {
		err = p.r.fromBase(ctx)
	}
	if err == nil {
		err = p.order(s, next)
	}
	if err != nil {
		return nil, err
	}
	if !s.DryRun {
		if err = findSecrets(ctx, p.find, p.r); err == nil {
			err = p.boxes.open()
		}
	}
	if err != nil {
		return nil, p.reject(ctx, err)
	}
	return p.r.job, nil
}

// order makes the job of what the next attempt is told.
func (p *taskJob) order(s tasks.State, next tasks.Attempt) error {
	in := projects.OrderInput{TaskID: s.Task, Task: next.Text, Mode: next.Mode, TargetBranch: next.Branch, Rebase: p.rebase}
	if s.Remote != nil {
		in.Review = s.Remote.Review
	}
	if in.TargetBranch == "" && p.title != "" {
		in.TargetBranch = workorder.Branch(in.TaskID, p.title)
	}
	if err := p.r.order(p.o, in); err != nil {
		return err
	}
	p.r.job.Title = p.title
	if s.IfExists { // the box may find more on the remote than we did: another machine may have been faster
		p.r.job.Order.IfExists = workorder.ExistsTell
	}
	return nil
}

// Ask loads the project and asks its remote for the task.
func (p *taskJob) Ask(ctx context.Context, s tasks.State) *tasks.Remote {
	on, err := p.ask(ctx, s)
	if err != nil {
		return &tasks.Remote{Err: err}
	}
	on.Repo = credentials.Redacted(p.r.project.Repo)
	return on
}

func (p *taskJob) ask(ctx context.Context, s tasks.State) (on *tasks.Remote, err error) {
	if s.Record != nil {
		if err := p.remember(s.Record); err != nil {
			return nil, err
		}
	}
	if p.r, err = p.ground(ctx); err != nil {
		return nil, err
	}
	if s.DryRun && s.Record != nil && s.Verb != tasks.Revise && s.Verb != tasks.Rebase {
		p.r.job = &job.Job{}
		return &tasks.Remote{Known: p.r.project.Repo != ""}, nil // nobody is asked
	}
	if p.r.untrusted != nil {
		return nil, p.r.untrusted // also a rehearsal asks the remote by what the project says
	}
	p.reachForge(p.r)
	if err := p.credentials(ctx, p.r); err != nil {
		return nil, err
	}
	if on, err = p.askRemote(ctx, s.Task); err != nil || !on.Known || s.Verb != tasks.Revise {
		return on, err
	}
	if p.pull == nil {
		return on, on.ReadReview(ctx, nil, nil, p.feedback)
	}
	return on, p.pull.client.fault(on.ReadReview(ctx, p.pull.client, &p.pull.PR, p.feedback))
}

func (p *taskJob) askRemote(ctx context.Context, id string) (*tasks.Remote, error) {
	switch r := p.r; {
	case r.project.Repo == "":
		return &tasks.Remote{}, nil
	case r.local != nil:
		return tasks.Ask(ctx, r.local, id)
	default:
		return tasks.Ask(ctx, served{p.find, r.project.Repo, r.job.Git}, id)
	}
}

// served is a repository that a server has.
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
func (p *taskJob) credentials(ctx context.Context, r *resolved) error {
	r.job = &job.Job{Order: workorder.Order{Repo: r.project.Repo, CloneURL: r.project.Repo, PR: r.project.PR}}
	return findSecrets(ctx, p.find, r)
}

// Job makes the job of a next attempt, with the credentials that the remote was asked with.
func (p *taskJob) Job(ctx context.Context, s tasks.State, next tasks.Action) (*job.Job, error) {
	r, t := p.r, next.Attempt
	// The work of a task of a served repository is gone with its remote.
	if _, given := p.o.sources["branch"]; !given && (next.Do == tasks.GoOn || r.local != nil) {
		r.project.Branch = cmp.Or(t.Base, r.project.Branch)
	}
	if next.Do == tasks.BeginAgain {
		if err := r.fromBase(ctx); err != nil {
			return nil, err
		}
	}
	was := r.job
	if err := p.order(s, t); err != nil {
		return nil, err
	}
	r.job.Secrets, r.job.Git, r.job.ForgeToken, r.job.App = was.Secrets, was.Git, was.ForgeToken, was.App
	return r.job, nil
}

// remember takes what the user said at the last attempt where it is not said now.
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
	if was.ProjectFile != "" {
		o.project, o.projectBy = was.ProjectFile, cmp.Or(was.ProjectBy, projectUnsaid)
		if _, err := os.Stat(o.project); filepath.IsAbs(o.project) && err != nil {
			return fault.New(workorder.ExitNoProject, fmt.Errorf("read the project file of task %s: %w", rec.TaskID, err), tasks.GiveProject)
		}
	}
	o.inherit(was.Overrides)
	return nil
}

// said is what the flags say of the run.
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

// inherit sets flags as an earlier command had them.
func (o *runOptions) inherit(was map[string]string) {
	values := o.overrides()
	for flag, value := range was {
		if values[flag] != nil {
			*values[flag], o.sources[flag] = value, "--"+flag+" (given before)"
		}
	}
}

// reject leaves a result for a run whose ground is bad. A command that could not be resolved (a mistake on the command
// line or in the project file, a repository or branch that is not there) is not a run: there is no
// order that anybody could go on with.
func (p *taskJob) reject(ctx context.Context, cause error) error {
	st, err := p.a.store()
	if err != nil {
		return cause
	}
	show := func(workorder.Event) {}
	if p.o.json {
		show = p.a.newView(true).event
	}
	l := p.a.launcher(&Backend{}, st, show)
	return l.Reject(ctx, p.r.job, fault.New(exitCode(cause), cause, fault.Hint(cause)))
}
