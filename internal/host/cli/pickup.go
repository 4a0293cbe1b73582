package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pickUp goes on with a task that may be known here, on the remote, or not at all.
type pickUp struct {
	starter
	// create says that the task is begun when nobody knows it, followed where it
	// runs, and told where it is done: what a scheduler wants that runs the same command again.
	create    bool
	text      string            // the task, or what is added to it; empty: nothing
	branch    string            // given by the user
	revise    *revision         // nil: there is no feedback to address
	rebase    *workorder.Rebase // nil: nothing is to be rebased
	pull      *taskPull         // the task's pull request; nil: it was not asked for
	now, wait bool
	waited    bool // for a limit of which nobody knows the end
}

// createNamed starts the task of a given id, or does with an existing one what
// --if-exists says.
func (a *App) createNamed(ctx context.Context, o *createOptions, task string) error {
	if !workorder.ValidTaskID(o.taskID) {
		return usage("--task-id %q is not T- and 8 of 0-9A-Z", o.taskID)
	}
	st, err := a.store()
	if err != nil {
		return err
	}
	p := &pickUp{starter: starter{a: a, o: o, find: credentials.New(a.Getenv)}, create: true, text: task}
	rec, err := st.Load(o.taskID)
	switch {
	case errors.Is(err, store.ErrNotFound) && !o.picksUp():
		return p.onlyNew(ctx)
	case errors.Is(err, store.ErrNotFound):
		rec = nil
	case err != nil:
		return err
	case !o.picksUp():
		return fault.New(workorder.ExitUsage, fmt.Errorf("task %s: %w", o.taskID, store.ErrExists),
			"`sandbox-agent continue "+o.taskID+"` goes on with it, --if-exists continue does so by itself; `sandbox-agent rm "+o.taskID+"` forgets it")
	}
	return p.run(ctx, rec)
}

// onlyNew begins a task that nobody may know: its box would be refused, and the
// folder of a run that never was would be in the way of going on with the task.
func (p *pickUp) onlyNew(ctx context.Context) error {
	if !p.o.dryRun { // which asks nobody
		r, on, err := p.look(ctx)
		if err == nil && on.known {
			return fault.New(workorder.ExitUsage, fmt.Errorf("task %s: %w: %s knows it", p.o.taskID, store.ErrExists, credentials.Redacted(r.project.Repo)),
				"`sandbox-agent continue "+p.o.taskID+"` with the same project goes on with it, --if-exists continue does so by itself; or choose another --task-id")
		}
	}
	return p.a.createNew(ctx, p.o, p.text) // what is wrong is said there
}

func (p *pickUp) run(ctx context.Context, rec *store.Record) error {
	if p.o.dryRun {
		return p.rehearse(ctx, rec)
	}
	if err := p.open(); err != nil {
		return err
	}
	if rec != nil {
		return p.known(ctx, rec)
	}
	err := p.unknown(ctx)
	wait, cancel := p.a.waiting(ctx, moveWait)
	defer cancel()
	for errors.Is(err, store.ErrExists) && wait.Err() == nil {
		// Another command was faster; its record may be a moment away.
		if rec, lerr := p.st.Load(p.o.taskID); lerr == nil {
			return p.known(ctx, rec)
		}
		pause(wait, lockPause)
	}
	return err
}

// known goes on with a task of this state folder, as whoever holds its lock.
func (p *pickUp) known(ctx context.Context, rec *store.Record) error {
	asked := rec.AttemptID
	wait, cancel := p.a.waiting(ctx, decideWait)
	defer func() { cancel() }()
	for {
		lock, err := p.st.TryLock(rec.TaskID)
		if errors.Is(err, store.ErrLocked) {
			// Its holder follows it, or is looking whether it can go on with it.
			if rec, err = p.st.Load(rec.TaskID); err == nil && !rec.Collected {
				return p.runs(ctx, rec)
			}
			pause(wait, lockPause)
		}
		if lock == nil && wait.Err() != nil || ctx.Err() != nil {
			if lock != nil {
				lock.Unlock()
			}
			return gaveUp(wait, p.st, p.o.taskID)
		}
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		v, err := p.held(ctx, rec.TaskID, asked)
		lock.Unlock()
		if err != nil {
			return err
		}
		switch {
		case v.runs:
			return p.runs(ctx, v.rec)
		case v.until.IsZero():
			return nil
		}
		if err := p.waitUntil(ctx, v.until); err != nil {
			return err
		}
		cancel()
		wait, cancel = p.a.waiting(ctx, decideWait)
	}
}

// verdict is what is left to do once the lock is given back. Zero: nothing.
type verdict struct {
	rec   *store.Record
	runs  bool
	until time.Time
}

// held decides and goes on, with the task's lock held.
func (p *pickUp) held(ctx context.Context, id, asked string) (verdict, error) {
	rec, err := p.st.Load(id)
	if err == nil {
		err = p.st.Mend(rec)
	}
	if err != nil {
		return verdict{}, err
	}
	if !rec.Collected {
		_, err := p.a.launcher(p.be, p.st, nil).Collect(ctx, rec)
		if errors.Is(err, launch.ErrRunning) {
			return verdict{rec: rec, runs: true}, nil
		}
		if err != nil {
			return verdict{}, err
		}
	}
	if rec.AttemptID != asked {
		// Another command went on with it meanwhile: once was asked for.
		return verdict{}, p.tell(rec)
	}
	last := state{status: rec.Status, by: rec.EndedBy, resumeAt: rec.ResumeAt, began: rec.Box != "" && rec.EndedBy != workorder.ByOrder, ended: rec.FinishedAt}
	last.parked = parkedInARow(rec.Attempts(), func(a store.Attempt) workorder.Status { return a.Status })
	switch p.judge(last) {
	case goesOn:
		until, err := p.next(ctx, rec)
		return verdict{until: until}, err
	case parked:
		if p.wait {
			return verdict{until: p.resumes(last)}, nil
		}
		return verdict{}, p.parked(last, func() error { return p.tell(rec) })
	}
	if p.create {
		return verdict{}, p.tell(rec)
	}
	return verdict{}, p.done(last)
}

// runs answers for a task whose box runs here.
func (p *pickUp) runs(ctx context.Context, rec *store.Record) error {
	if !p.create {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s is running", rec.TaskID),
			"follow it with `sandbox-agent logs -f "+rec.TaskID+"`, or end it first with `sandbox-agent stop "+rec.TaskID+"`")
	}
	if p.o.detach {
		fmt.Fprintln(p.a.Stdout, rec.TaskID)
		return nil
	}
	return p.a.follow(ctx, p.be, p.st, rec, p.a.newView(p.o.json))
}

// next carries out the next attempt of a task of this state folder, or says until
// when that has to wait.
func (p *pickUp) next(ctx context.Context, rec *store.Record) (until time.Time, err error) {
	if err := p.remember(rec); err != nil {
		return until, err
	}
	r, on, err := p.look(ctx)
	if err != nil {
		return until, err
	}
	if last := on.last(); last != nil && !rec.Knows(last.ID) {
		// Another machine went on with it.
		if stop, until, err := p.elsewhere(on, last); stop {
			return until, err
		}
	}
	if !on.known && (p.revise != nil || p.rebase != nil) {
		return until, p.nowhere(r)
	}
	if !on.known {
		err = p.afresh(ctx, r, rec)
	} else {
		text := p.text
		if text == "" && on.state == nil {
			// Only we know it then. Without it the box decides whether it can go on.
			text, _ = launch.TaskText(rec)
		}
		err = p.order(r, on, text, cmp.Or(p.branch, rec.TargetBranch), rec.Branch)
	}
	if err != nil {
		return until, err
	}
	on.tell(r.job, rec)
	r.job.Order.SpentUSDByAttempt = on.unknown(launch.Spent(rec))
	return until, p.start(ctx, r, func(l *launch.Launcher) (*workorder.Result, error) { return l.Resume(ctx, p.a.Hard, r.job, rec) })
}

// credentials prepares secrets for a job that is made later.
func (p *pickUp) credentials(ctx context.Context, r *resolved) error {
	r.job = &launch.Job{Order: workorder.Order{Repo: r.project.Repo, CloneURL: r.project.Repo, PR: r.project.PR}}
	return findSecrets(ctx, p.find, r)
}

// order makes the job of a next attempt.
func (p *pickUp) order(r *resolved, on *remoteTask, text, branch, base string) error {
	mode := workorder.ModeContinue
	if last := on.last(); last != nil {
		wasPlan := last.Mode == workorder.ModePlan
		switch {
		case wasPlan && !p.o.plan:
			return p.isPlan()
		case !wasPlan && p.o.plan:
			return p.isNoPlan()
		case wasPlan:
			mode = workorder.ModePlan // nothing of the one that was cut short is kept: it begins anew
		}
	}
	// Where nothing names the branch it is made of the text, as it was the first time.
	if on.state != nil || on.warning != "" || len(on.branches) > 0 || branch != "" || text == "" {
		var err error
		if branch, err = on.branch(p.o.taskID, branch); err != nil {
			return err
		}
	}
	if _, given := p.o.sources["branch"]; !given {
		r.project.Branch = cmp.Or(base, on.base(), r.project.Branch)
	}
	in := projects.OrderInput{TaskID: p.o.taskID, Task: text, Mode: mode, TargetBranch: branch}
	if p.revise != nil {
		in.Mode, in.Review = workorder.ModeRevise, p.revise.review
	}
	if p.rebase != nil {
		in.Mode, in.Rebase = workorder.ModeRebase, p.rebase
	}
	return p.make(r, in, on)
}

// make is resolved.order for a job that has its credentials.
func (p *pickUp) make(r *resolved, in projects.OrderInput, on *remoteTask) error {
	secrets, cred, forge, app := r.job.Secrets, r.job.Git, r.job.ForgeToken, r.job.App
	if err := r.order(p.o, in); err != nil {
		return err
	}
	r.job.Secrets, r.job.Git, r.job.ForgeToken, r.job.App = secrets, cred, forge, app
	if last := on.last(); last != nil {
		r.job.Attempt = last.Number + 1
	}
	return nil
}

// afresh makes the job of an attempt of which the remote has nothing to go on from.
func (p *pickUp) afresh(ctx context.Context, r *resolved, rec *store.Record) error {
	text := p.text
	if text == "" {
		var err error
		if text, err = launch.TaskText(rec); err != nil {
			return fault.New(workorder.ExitNotFound, fmt.Errorf("begin task %s again: the remote knows nothing of it, and its text is gone: %w", rec.TaskID, err), "give the task's text: --task")
		}
	}
	if _, given := p.o.sources["branch"]; !given && r.local != nil {
		r.project.Branch = cmp.Or(rec.Branch, r.project.Branch)
	}
	if err := r.fromBase(ctx); err != nil {
		return err
	}
	switch wasPlan := rec.Mode == workorder.ModePlan; {
	case wasPlan && !p.o.plan:
		return p.isPlan()
	case !wasPlan && p.o.plan && rec.Box != "":
		return p.isNoPlan()
	}
	in := projects.OrderInput{TaskID: rec.TaskID, Task: text, Mode: p.o.mode(), TargetBranch: cmp.Or(p.branch, rec.TargetBranch)}
	if err := p.make(r, in, &remoteTask{}); err != nil {
		return err
	}
	if rec.Box != "" {
		r.job.Warnings = append(r.job.Warnings, "nothing of the last attempt is on the remote: the task begins anew")
	}
	return nil
}

// remember takes what the user said at the last attempt where it is not said now.
func (p *pickUp) remember(rec *store.Record) error {
	o := p.o
	if o.out != "" {
		abs, err := filepath.Abs(o.out)
		if err != nil {
			return fmt.Errorf("find output folder: %w", err)
		}
		if filepath.Join(abs, rec.TaskID) != rec.Dir {
			return usage("the output of %s lies in %s: all attempts of a task lie together, leave out --out", rec.TaskID, rec.Dir)
		}
	}
	if _, given := o.sources["project"]; !given && rec.Request.ProjectFile == "" {
		if !p.create {
			return fault.New(workorder.ExitNoProject, fmt.Errorf("the project file of task %s is not recorded", rec.TaskID), "give the project: --project")
		}
	} else if !given {
		o.project, o.projectBy = rec.Request.ProjectFile, remembered(rec.Request)
		if _, err := os.Stat(o.project); filepath.IsAbs(o.project) && err != nil {
			return fault.New(workorder.ExitNoProject, fmt.Errorf("read the project file of task %s: %w", rec.TaskID, err), "give the project: --project")
		}
	}
	o.inherit(rec.Request)
	return nil
}

// inherit takes the flags of an earlier command, where they are not given now.
func (o *createOptions) inherit(was store.Request) {
	values := o.overrides()
	for flag, value := range was.Overrides {
		if _, given := o.sources[flag]; given || values[flag] == nil {
			continue
		}
		if _, given := o.sources["network"]; flag == "allow" && given && o.network != string(workorder.NetworkRestricted) {
			continue // the mode that is asked for now has no rules
		}
		*values[flag], o.sources[flag] = value, "--"+flag+" (given before)"
	}
}

// unknown goes on with a task of another state folder, which the remote knows, or
// begins it.
func (p *pickUp) unknown(ctx context.Context) error {
	r, on, err := p.look(ctx)
	if err != nil && p.create {
		return p.a.createNew(ctx, p.o, p.text) // what is wrong is said there
	}
	if err != nil {
		return err
	}
	if !on.known {
		if p.create {
			return p.a.createNew(ctx, p.o, p.text)
		}
		return p.nowhere(r)
	}
	if last := on.last(); last != nil {
		stop, until, err := p.elsewhere(on, last)
		if err == nil && !until.IsZero() {
			if err = p.waitUntil(ctx, until); err == nil {
				return p.unknown(ctx) // much may have happened since
			}
		}
		if stop {
			return err
		}
	}
	if err := p.order(r, on, p.text, p.branch, ""); err != nil {
		return err
	}
	on.tell(r.job, nil)
	return p.start(ctx, r, func(l *launch.Launcher) (*workorder.Result, error) { return l.Run(ctx, p.a.Hard, r.job) })
}

func (p *pickUp) look(ctx context.Context) (*resolved, *remoteTask, error) {
	r, err := p.ground(ctx)
	if err == nil {
		err = r.untrusted // also a rehearsal asks the remote by what the project says
	}
	if err == nil {
		p.reachForge(r)
		err = p.credentials(ctx, r)
	}
	if err != nil {
		return nil, nil, err
	}
	on, err := p.ask(ctx, r)
	if err == nil && on.known && p.revise != nil {
		err = p.revise.read(ctx, p.pull, on, p.text)
	}
	return r, on, err
}

func (p *pickUp) nowhere(r *resolved) error {
	where := "the project has no repository"
	if r.project.Repo != "" {
		where = credentials.Redacted(r.project.Repo) + " has neither its branch nor its state"
	}
	return fault.New(workorder.ExitNotFound, fmt.Errorf("task %s is not known: this state folder does not have it, and %s", p.o.taskID, where),
		"check the id and --repo; `sandbox-agent create --task-id "+p.o.taskID+"` starts it")
}

// elsewhere decides by what the remote knows of an attempt of another machine.
// stop says that there is no next one now, but perhaps one later.
func (p *pickUp) elsewhere(on *remoteTask, last *workorder.Attempt) (stop bool, until time.Time, err error) {
	if last.Status == "" {
		return false, until, nil // the box finds out whether it still lives
	}
	s := state{status: last.Status, by: last.EndedBy, resumeAt: last.ResumeAt, began: last.EndedBy != workorder.ByOrder, ended: last.EndedAt}
	s.parked = parkedInARow(on.state.Attempts, func(a workorder.Attempt) workorder.Status { return a.Status })
	d := p.judge(s)
	tell := func() error {
		p.show(on.result(last), nil)
		return ended(last.Status, last.EndedBy)
	}
	switch {
	case d == goesOn:
		return false, until, nil
	case d == parked && p.wait:
		return true, p.resumes(s), nil
	case d == parked:
		return true, until, p.parked(s, tell)
	case p.create:
		return true, until, tell()
	}
	return true, until, p.done(s)
}

// rehearse prints what would be done.
func (p *pickUp) rehearse(ctx context.Context, rec *store.Record) error {
	if p.revise != nil || p.rebase != nil {
		return p.rehearseAsked(ctx, rec)
	}
	if rec == nil {
		r, on, err := p.look(ctx)
		if p.create && (err != nil || !on.known) {
			return p.a.createNew(ctx, p.o, p.text)
		}
		if err == nil && !on.known {
			err = p.nowhere(r)
		}
		if err == nil {
			err = p.order(r, on, p.text, p.branch, "")
		}
		if err != nil {
			return err
		}
		on.tell(r.job, nil)
		return p.a.dryRun(r)
	}
	if err := p.remember(rec); err != nil {
		return err
	}
	r, err := p.a.loadGround(ctx, p.o)
	if err != nil {
		return err
	}
	r.job = &launch.Job{}
	if r.project.Repo == "" {
		err = p.afresh(ctx, r, rec)
	} else {
		err = p.order(r, &remoteTask{}, p.text, cmp.Or(p.branch, rec.TargetBranch), rec.Branch)
	}
	if err != nil {
		return err
	}
	return p.a.dryRun(r)
}
