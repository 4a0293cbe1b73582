package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// jobBuilder makes the jobs of a request from its flags, the project, and the flags of earlier commands.
type jobBuilder struct {
	TaskRequest
	t     *Tasks
	find  *credentials.Finder
	pull  *taskPull // the task's pull request; nil if it was not asked for
	boxes *attemptRunner
	r     *resolve.Resolved // set when the project was loaded
}

// run carries out the request. rec is nil for a task that is not known here.
func (p *jobBuilder) run(ctx context.Context, st *taskstore.Store, rec *taskstore.Record) (TaskOutcome, error) {
	if !p.DryRun && !p.OnlyNew() {
		if err := p.boxes.open(); err != nil {
			return TaskOutcome{}, err
		}
	}
	flow := &tasks.Controller{Store: st, Attempts: p.boxes, Project: p, Detach: p.Flags.Detach, Patience: p.t.Patience}
	if p.t.Waits != nil {
		flow.Waits = func(a tasks.Action) { p.t.Waits(p.Task, a.Until, a.Unknown) }
	}
	out, err := flow.Run(ctx, tasks.State{Request: p.Request, Record: rec})
	return TaskOutcome{out, p.Request, p.r}, err
}

// runKnown is run after the look-up of a task.
func (p *jobBuilder) runKnown(ctx context.Context, rec *taskstore.Record, err error) (TaskOutcome, error) {
	if err == nil {
		err = p.CheckBranch()
	}
	if err != nil {
		return TaskOutcome{}, err
	}
	st, err := p.t.Store()
	if err != nil {
		return TaskOutcome{}, err
	}
	return p.run(ctx, st, rec)
}

// knownHere is the record of the task, whose id it completes. It is nil if only the remote may know the task.
func (p *jobBuilder) knownHere(ctx context.Context) (*taskstore.Record, error) {
	st, rec, err := p.t.Find(ctx, p.Task)
	if err == nil {
		p.Task = rec.TaskID
		return rec, nil
	}
	if full := FullTaskID(p.Task); st != nil && exiterr.Code(err) == workorder.ExitNotFound && workorder.ValidTaskID(full) {
		p.Task = full
		return nil, nil
	}
	return nil, err
}

// resolve finds the project. If no record names a project, it looks for the task on the project's remote.
func (p *jobBuilder) resolve(ctx context.Context) (*resolve.Resolved, error) {
	r, err := p.t.Resolver.Find(ctx, &p.Flags)
	if _, none := errors.AsType[*projects.NotFoundError](err); none && p.Verb != tasks.Create && p.Task != "" && p.Flags.Project == "" {
		return nil, tasks.UnknownTaskError(p.Task, "its project: --project P, or without a project file its repository: --repo R")
	}
	return r, err
}

// New makes the job of a new task. If it fails, there is no task.
func (p *jobBuilder) New(ctx context.Context, s tasks.State, next tasks.Attempt) (_ *job.Job, err error) {
	if p.r, err = p.t.Resolver.Find(ctx, &p.Flags); err == nil {
		if p.r.Found != nil && p.t.Found != nil {
			p.t.Found(Findings{p.r.Found.Report(), len(p.r.Found.Validate) > 0, p.r.Found.HasTest()})
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
func (p *jobBuilder) order(ctx context.Context, s tasks.State, next tasks.Attempt) error {
	in := projects.OrderInput{TaskID: s.Task, Task: next.Text, Mode: next.Mode, TargetBranch: next.Branch, Rebase: p.Rebase}
	if s.Remote != nil {
		in.Review = s.Remote.Review
	}
	if dir := p.r.Project.Dir; p.r.Local != nil {
		in.Author = localrepo.Author(ctx, p.r.Local.Path)
	} else {
		in.Author = localrepo.Author(ctx, dir)
	}
	if who, err := commitAuthor(p.t.Env, ""); err != nil {
		return err
	} else if id, err := workorder.ParseIdentity(who); err == nil { // a project's own comes first
		in.Author = id
	}
	if in.TargetBranch == "" && p.Title != "" {
		in.TargetBranch = workorder.Branch(in.TaskID, p.Title)
	}
	if err := p.r.Order(in); err != nil {
		return err
	}
	p.r.Job.Title = p.Title
	if s.IfExists { // the box may find more on the remote: another machine may have been faster
		p.r.Job.Order.IfExists = workorder.IfExistsReport
	}
	return nil
}

// Ask loads the project and asks its remote about the task.
func (p *jobBuilder) Ask(ctx context.Context, s tasks.State) *tasks.Remote {
	on, err := p.ask(ctx, s)
	if err != nil {
		return &tasks.Remote{Err: err}
	}
	on.Repo = credentials.Redacted(p.r.Project.Repo)
	return on
}

func (p *jobBuilder) ask(ctx context.Context, s tasks.State) (on *tasks.Remote, err error) {
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
		err = p.r.MissingSecrets()
	}
	if err = cmp.Or(err, p.credentials(ctx, p.r)); err != nil {
		return nil, err
	}
	if on, err = p.askRemote(ctx, s.Task); err != nil || !on.Known {
		return on, err
	}
	if err := p.r.MissingSecrets(); err != nil { // not before it is known that there is such a task
		return nil, err
	}
	if s.Verb != tasks.Revise {
		return on, nil
	}
	feedback := tasks.FeedbackFile{}
	if p.Feedback != nil {
		feedback = *p.Feedback
	}
	if p.pull == nil {
		return on, on.ReadReview(ctx, nil, nil, feedback)
	}
	return on, p.pull.client.fault(on.ReadReview(ctx, p.pull.client, &p.pull.PR, feedback))
}

func (p *jobBuilder) askRemote(ctx context.Context, id string) (*tasks.Remote, error) {
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

func (s served) TaskRefs(ctx context.Context, id string) (map[string]string, error) {
	return s.find.TaskRefs(ctx, s.repo, id, s.cred)
}

func (s served) DeleteRefs(ctx context.Context, refs map[string]string) error {
	return s.find.DeleteRefs(ctx, s.repo, refs, s.cred)
}

func (s served) State(ctx context.Context, id string) (*workorder.State, error) {
	return s.find.State(ctx, s.repo, id, s.cred)
}

// credentials prepares secrets for a job that is made later.
func (p *jobBuilder) credentials(ctx context.Context, r *resolve.Resolved) error {
	r.Job = &job.Job{Order: workorder.Order{Repo: r.Project.Repo, CloneURL: r.Project.Repo, Repos: r.Project.OrderRepos(), PR: r.Project.PR}}
	return r.FindCredentials(ctx, p.find)
}

// Job makes the job of a next attempt, with the credentials that the remote was asked with.
func (p *jobBuilder) Job(ctx context.Context, s tasks.State, next tasks.Action) (*job.Job, error) {
	t := next.Attempt
	_, given := p.Flags.Sources["branch"]
	if p.r.Found != nil && !given && p.Flags.TaskBase == "" && t.Base != "" {
		// The remote named the base branch. Another branch may be checked out here, and its files make another project.
		if err := p.detectAgain(ctx, t.Base); err != nil {
			return nil, err
		}
	}
	r := p.r
	// The remote of a served repository is gone, and the work on it too.
	if !given && (next.Kind == tasks.ActionContinue || r.Local != nil) {
		r.Project.Branch = cmp.Or(t.Base, r.Project.Branch)
	}
	if next.Kind == tasks.ActionRestart {
		if err := r.FromBase(ctx); err != nil {
			return nil, err
		}
	}
	was := r.Job
	if err := p.order(ctx, s, t); err != nil {
		return nil, err
	}
	r.Job.Secrets, r.Job.Git, r.Job.RepoGit, r.Job.ForgeToken, r.Job.App = was.Secrets, was.Git, was.RepoGit, was.ForgeToken, was.App
	return r.Job, nil
}

// detectAgain makes the project of the files of a branch, with the credentials that it needs.
func (p *jobBuilder) detectAgain(ctx context.Context, base string) (err error) {
	p.Flags.TaskBase = base
	if p.r, err = p.resolve(ctx); err != nil {
		return err
	}
	p.reachForge(p.r)
	return cmp.Or(p.r.MissingSecrets(), p.credentials(ctx, p.r))
}

// remember takes the settings of the last attempt that this command does not give.
func (p *jobBuilder) remember(rec *taskstore.Record) error {
	f := &p.Flags
	said := said(f)
	if f.Out != "" {
		var err error
		if said.Out, err = filepath.Abs(f.Out); err != nil {
			return fmt.Errorf("find output directory: %w", err)
		}
	}
	was, err := tasks.Remember(p.Verb, rec, said)
	if err != nil {
		return err
	}
	if was.ProjectFile == "" {
		f.ProjectSource = was.ProjectBy
	} else {
		f.Project, f.ProjectSource = was.ProjectFile, cmp.Or(was.ProjectBy, resolve.Unsaid)
		if _, err := os.Stat(f.Project); filepath.IsAbs(f.Project) && err != nil {
			return exiterr.New(workorder.ExitNoProject, fmt.Errorf("read the project file of task %s: %w", rec.TaskID, err), tasks.GiveProject)
		}
	}
	f.TaskBase = rec.Branch
	inherit(f, was.Overrides)
	return nil
}

// said are the settings that the flags give, without the output directory.
func said(f *resolve.Flags) tasks.GivenFlags {
	return tasks.GivenFlags{Given: f.Sources, Network: f.Values["network"]}
}

// inherit sets flags to the values of an earlier command.
func inherit(f *resolve.Flags, was map[string]string) {
	for flag, value := range was {
		if isSetting(flag) {
			f.Values[flag], f.Sources[flag] = value, "--"+flag+" (given before)"
		}
	}
}
