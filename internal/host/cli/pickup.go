package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lockPause is between two looks at a task that another command is just deciding on.
	lockPause = 100 * time.Millisecond
	// parkPoll keeps a wait right over a suspended machine: its timers stand still.
	parkPoll = 30 * time.Second
)

// pickUp goes on with a task that may be known here, on the remote, or not at all.
type pickUp struct {
	starter
	// create says that the task is begun when nobody knows it, followed where it
	// runs, and told where it is done: what a scheduler wants that runs the same command again.
	create    bool
	text      string // the task, or what is added to it; empty: nothing
	branch    string // given by the user
	now, wait bool
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
	case errors.Is(err, store.ErrNotFound) && o.ifExists != ifExistsContinue:
		return a.createNew(ctx, o, task)
	case errors.Is(err, store.ErrNotFound):
		rec = nil
	case err != nil:
		return err
	case o.ifExists != ifExistsContinue:
		return fault.New(workorder.ExitUsage, fmt.Errorf("task %s: %w", o.taskID, store.ErrExists),
			"`sandbox-agent continue "+o.taskID+"` goes on with it, --if-exists continue does so by itself; `sandbox-agent rm "+o.taskID+"` forgets it")
	}
	return p.run(ctx, rec)
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
	for errors.Is(err, store.ErrExists) && ctx.Err() == nil {
		// Another command was faster; its record may be a moment away.
		if rec, lerr := p.st.Load(p.o.taskID); lerr == nil {
			return p.known(ctx, rec)
		}
		pause(ctx, lockPause)
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// known goes on with a task of this state folder, as whoever holds its lock.
func (p *pickUp) known(ctx context.Context, rec *store.Record) error {
	asked := rec.AttemptID
	for {
		lock, err := p.st.TryLock(rec.TaskID)
		if errors.Is(err, store.ErrLocked) {
			// Its holder follows it, or is looking whether it can go on with it.
			if rec, err = p.st.Load(rec.TaskID); err == nil && !rec.Collected {
				return p.runs(ctx, rec)
			}
			pause(ctx, lockPause)
		}
		if ctx.Err() != nil {
			return &ending{exitLeft}
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
	last := state{status: rec.Status, by: rec.EndedBy, resumeAt: rec.ResumeAt, ran: rec.Box != ""}
	switch p.judge(last) {
	case goesOn:
		until, err := p.next(ctx, rec)
		return verdict{until: until}, err
	case parked:
		if p.wait {
			return verdict{until: *rec.ResumeAt}, nil
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

// state is how the last attempt ended.
type state struct {
	status   workorder.Status
	by       workorder.EndedBy
	resumeAt *time.Time
	ran      bool // there was a box
}

type decision int

const (
	goesOn decision = iota
	parked
	isDone
)

// judge decides by how the last attempt ended whether there is a next one.
func (p *pickUp) judge(s state) decision {
	switch {
	case s.status == workorder.StatusParked && s.resumeAt != nil && time.Until(*s.resumeAt) > 0 && !p.now:
		return parked
	case workorder.Resumable(s.status, s.by), !s.ran:
		// What kept a run from getting a box can be mended from outside.
		return goesOn
	case p.create:
		return isDone
	case p.text != "":
		return goesOn
	}
	switch s.status {
	case workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusPlanned:
		return isDone
	}
	return goesOn // it failed, and the user wants another try
}

func (p *pickUp) done(s state) error {
	return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s is done (%s)", p.o.taskID, s.status),
		"`sandbox-agent result "+p.o.taskID+"` shows it; --task \"...\" adds to it")
}

// parked says when a parked task can go on.
func (p *pickUp) parked(s state, tell func() error) error {
	if p.o.json {
		return tell()
	}
	fmt.Fprintf(p.a.Stdout, "%s is parked until %s, when its provider's limit resets\n", p.o.taskID, render.Clock(*s.resumeAt, time.Now()))
	if !p.create {
		fmt.Fprintf(p.a.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", p.o.taskID)
	}
	return &ending{workorder.ExitCode(s.status, s.by)}
}

func (p *pickUp) waitUntil(ctx context.Context, at time.Time) error {
	fmt.Fprintf(p.a.Stderr, "%s is parked until %s; waiting\n", p.o.taskID, render.Clock(at, time.Now()))
	for left := time.Until(at); left > 0; left = time.Until(at) {
		if pause(ctx, min(left, parkPoll)); ctx.Err() != nil {
			return &ending{exitLeft}
		}
	}
	return nil
}

// tell prints the result that is recorded and ends with its exit code.
func (p *pickUp) tell(rec *store.Record) error {
	res, err := launch.ReadResult(rec)
	if err != nil {
		return err
	}
	p.show(res, rec)
	return ended(res.Status, res.EndedBy)
}

func (p *pickUp) show(res *workorder.Result, rec *store.Record) {
	switch {
	case p.o.json:
		view := p.a.newView(true)
		view.event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
		view.r.Close()
	case rec != nil:
		p.a.summary(res, rec)
	default:
		p.a.summary(res, &store.Record{})
	}
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
	if !on.known {
		err = p.afresh(ctx, r, rec)
	} else {
		err = p.order(r, on, cmp.Or(p.branch, rec.TargetBranch), rec.Branch)
	}
	if err != nil {
		return until, err
	}
	on.tell(r.job, rec)
	return until, p.start(ctx, r, func(l *launch.Launcher) (*workorder.Result, error) { return l.Resume(ctx, p.a.Hard, r.job, rec) })
}

// credentials fetches secrets into a job that is made later.
func (p *pickUp) credentials(ctx context.Context, r *resolved) error {
	r.job = &launch.Job{Order: workorder.Order{Repo: r.project.Repo, CloneURL: r.project.Repo}}
	return findSecrets(ctx, p.find, r)
}

// order makes the job of a next attempt.
func (p *pickUp) order(r *resolved, on *remoteTask, branch, base string) error {
	branch, err := on.branch(p.o.taskID, branch)
	if err != nil {
		return err
	}
	if _, given := p.o.sources["branch"]; !given {
		r.project.Branch = cmp.Or(base, on.base(), r.project.Branch)
	}
	return p.make(r, projects.OrderInput{TaskID: p.o.taskID, Task: p.text, Mode: workorder.ModeContinue, TargetBranch: branch}, on)
}

// make is resolved.order for a job whose secrets were fetched.
func (p *pickUp) make(r *resolved, in projects.OrderInput, on *remoteTask) error {
	secrets, cred := r.job.Secrets, r.job.Git
	if err := r.order(p.o, in); err != nil {
		return err
	}
	r.job.Secrets, r.job.Git = secrets, cred
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
	in := projects.OrderInput{TaskID: rec.TaskID, Task: text, Mode: workorder.ModeCreate, TargetBranch: cmp.Or(p.branch, rec.TargetBranch)}
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
		o.project = rec.Request.ProjectFile
		if _, err := os.Stat(o.project); filepath.IsAbs(o.project) && err != nil {
			return fault.New(workorder.ExitNoProject, fmt.Errorf("read the project file of task %s: %w", rec.TaskID, err), "give the project: --project")
		}
	}
	values := o.overrides()
	for flag, value := range rec.Request.Overrides {
		if _, given := o.sources[flag]; given || values[flag] == nil {
			continue
		}
		*values[flag], o.sources[flag] = value, "--"+flag+" (given before)"
	}
	return nil
}

// unknown goes on with a task of another state folder, which the remote knows, or
// begins it.
func (p *pickUp) unknown(ctx context.Context) error {
	r, on, err := p.look(ctx)
	if err != nil && p.create {
		return p.a.createNew(ctx, p.o, p.text) // what is wrong is recorded there
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
	if err := p.order(r, on, p.branch, ""); err != nil {
		return err
	}
	on.tell(r.job, nil)
	return p.start(ctx, r, func(l *launch.Launcher) (*workorder.Result, error) { return l.Run(ctx, p.a.Hard, r.job) })
}

func (p *pickUp) look(ctx context.Context) (*resolved, *remoteTask, error) {
	r, err := p.a.loadGround(ctx, p.o)
	if err == nil {
		err = p.credentials(ctx, r)
	}
	if err != nil {
		return nil, nil, err
	}
	on, err := p.ask(ctx, r)
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
	s := state{status: last.Status, by: last.EndedBy, resumeAt: last.ResumeAt, ran: true}
	d := p.judge(s)
	tell := func() error {
		p.show(on.result(last), nil)
		return ended(last.Status, last.EndedBy)
	}
	switch {
	case d == goesOn:
		return false, until, nil
	case d == parked && p.wait:
		return true, *last.ResumeAt, nil
	case d == parked:
		return true, until, p.parked(s, tell)
	case p.create:
		return true, until, tell()
	}
	return true, until, p.done(s)
}

// rehearse prints what would be done.
func (p *pickUp) rehearse(ctx context.Context, rec *store.Record) error {
	if rec == nil {
		r, on, err := p.look(ctx)
		if p.create && (err != nil || !on.known) {
			return p.a.createNew(ctx, p.o, p.text)
		}
		if err == nil && !on.known {
			err = p.nowhere(r)
		}
		if err == nil {
			err = p.order(r, on, p.branch, "")
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
		err = p.order(r, &remoteTask{}, cmp.Or(p.branch, rec.TargetBranch), rec.Branch)
	}
	if err != nil {
		return err
	}
	return p.a.dryRun(r)
}

// remoteTask is what the remote has of a task.
type remoteTask struct {
	known    bool
	branches []string
	state    *workorder.State // nil: none, or it could not be read
	warning  string
}

// ask looks at the remote before a box is started for nothing. What counts in the
// end is what the box finds.
func (p *pickUp) ask(ctx context.Context, r *resolved) (*remoteTask, error) {
	on := &remoteTask{}
	id, repo, cred := p.o.taskID, r.project.Repo, r.job.Git
	var state bool
	var err error
	switch {
	case repo == "":
		return on, nil
	case r.local != nil:
		on.branches, state, err = r.local.TaskRefs(ctx, id)
	default:
		on.branches, state, err = p.find.TaskRefs(ctx, repo, id, cred)
	}
	if err != nil {
		return nil, err
	}
	on.known = state || len(on.branches) > 0
	if !state {
		return on, nil
	}
	if r.local != nil {
		on.state, err = r.local.State(ctx, id)
	} else {
		on.state, err = p.find.State(ctx, repo, id, cred)
	}
	if err != nil {
		on.warning = err.Error()
	}
	return on, nil
}

func (t *remoteTask) last() *workorder.Attempt {
	if t.state == nil {
		return nil
	}
	return t.state.Last()
}

func (t *remoteTask) base() string {
	if t.state == nil {
		return ""
	}
	return t.state.BaseBranch
}

// branch is the task's branch: the one named, else the one the remote knows.
func (t *remoteTask) branch(id, named string) (string, error) {
	switch {
	case t.state != nil && named != "" && named != t.state.TargetBranch:
		return "", usage("the branch of %s is %s, not %s", id, t.state.TargetBranch, named)
	case t.state != nil:
		return t.state.TargetBranch, nil
	case named != "":
		return named, nil
	case len(t.branches) == 1:
		return t.branches[0], nil
	case len(t.branches) == 0:
		return "", fault.New(workorder.ExitGit, fmt.Errorf("the remote's state of %s cannot be read, and it has no branch of that task: %s", id, t.warning), "name its branch: --target-branch")
	}
	return "", fault.New(workorder.ExitUsage, fmt.Errorf("the remote has several branches of %s: %s", id, strings.Join(t.branches, ", ")), "name the one to go on with: --target-branch")
}

// tell warns of what the box will find. rec is nil for a task that is not known here.
func (t *remoteTask) tell(job *launch.Job, rec *store.Record) {
	if t.warning != "" {
		job.Warnings = append(job.Warnings, t.warning)
	}
	if t.state == nil || t.state.Lease == nil || rec != nil && rec.Knows(t.state.Lease.AttemptID) {
		return
	}
	job.Warnings = append(job.Warnings, fmt.Sprintf("another box (host %s) had the lease of the task at %s: this one waits until it is certain that it is gone, and gives way if it is not",
		render.Clean(t.state.Lease.Holder), render.Clock(t.state.Lease.RenewedAt, time.Now())))
}

// result is what is known of an attempt on another machine.
func (t *remoteTask) result(last *workorder.Attempt) *workorder.Result {
	s := t.state
	res := &workorder.Result{
		TaskID: s.TaskID, Project: s.Project, Mode: last.Mode, Attempt: last.Number, AttemptID: last.ID, Status: last.Status, EndedBy: last.EndedBy,
		Reason: last.Reason, Resumable: workorder.Resumable(last.Status, last.EndedBy), ResumeAt: last.ResumeAt, StartedAt: last.StartedAt,
		BaseBranch: s.BaseBranch, Branch: s.TargetBranch, BaseSHA: s.BaseSHA, HeadSHA: last.HeadSHA, Pushed: last.HeadSHA != "",
		Agent: last.Agent, Usage: last.Usage, Warnings: []string{"the task ended on another machine; its output lies there"},
	}
	if !last.EndedAt.IsZero() {
		res.DurationMS = max(0, last.EndedAt.Sub(last.StartedAt).Milliseconds())
	}
	return res
}
