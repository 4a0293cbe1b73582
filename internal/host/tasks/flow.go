package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Store is what the flow needs of the state folder.
type Store interface {
	Load(id string) (*store.Record, error)
	TryLock(id string) (*store.Lock, error)
	LockPath(id string) string
	// Mend completes a change of the record that a dead process left half done.
	Mend(rec *store.Record) error
}

// Boxes runs attempts and collects their results.
type Boxes interface {
	// Run starts the first attempt that this machine knows.
	Run(ctx context.Context, job *job.Job) (*workorder.Result, error)
	// Resume starts the attempt after the one in last, whose lock the caller holds.
	Resume(ctx context.Context, job *job.Job, last *store.Record) (*workorder.Result, error)
	// Watch follows the box of the last attempt to its end.
	Watch(ctx context.Context, rec *store.Record) (*workorder.Result, error)
	// Collect collects the result of a box that has ended. It returns launch.ErrRunning for one that has not.
	Collect(ctx context.Context, rec *store.Record) error
}

// Project is the project that the task belongs to.
type Project interface {
	// Ask loads the project and asks its remote about the task.
	Ask(ctx context.Context, s State) *Remote
	// New makes the job of a task that neither this machine nor the remote knows.
	New(ctx context.Context, s State, next Attempt) (*job.Job, error)
	// Job makes the job of a next attempt. It is called after Ask.
	Job(ctx context.Context, s State, next Action) (*job.Job, error)
}

// Flow carries out what Next decides.
type Flow struct {
	Store   Store
	Boxes   Boxes
	Project Project
	Opening *Opening // only OpenPR has one
	// Waits is called before each wait for a provider's limit.
	Waits func(Action)
	// Detach makes Run return while the box runs.
	Detach bool
	// Patience overrides how long to wait for another command; if 0, each wait has its own bound.
	Patience time.Duration
}

// Outcome is the final action of a flow and its results.
type Outcome struct {
	Do     Do
	Until  time.Time     // when the limit of a reported task resets; zero if it is not parked
	Says   string        // the text of Nothing
	Record *store.Record // of Follow and Report
	Job    *job.Job      // of Begin, BeginAgain and GoOn; a rehearsal stops there
	// Result is nil for a box that still runs, for a rehearsal, and for Report, whose result is in the record's folder.
	Result   *workorder.Result
	PR       *workorder.PR // of Open
	Warnings []string      // of Open; also if it failed
}

// Run carries out the user's request.
func (f *Flow) Run(ctx context.Context, s State) (Outcome, error) {
	t := &turn{Flow: f, s: s}
	t.knows(s.Record)
	defer func() { t.unlock(); t.cancel() }()
	t.patience(ctx)
	for {
		a, err := t.next(ctx)
		if err != nil {
			return Outcome{}, err
		}
		out, over, err := t.prepare(ctx, a)
		if !over && err == nil {
			continue
		}
		if err == nil && out.Job != nil && !s.DryRun {
			if err = t.start(ctx, &out); t.overtaken(ctx, err) {
				continue
			}
		}
		return out, err
	}
}

// turn is the state of one command in the flow.
type turn struct {
	*Flow
	s      State
	lock   *store.Lock
	wait   context.Context // for the wait for another command's decision
	cancel context.CancelFunc
}

// patience restarts the bound on the wait for another command.
func (t *turn) patience(ctx context.Context) {
	if t.cancel != nil {
		t.cancel()
	}
	t.wait, t.cancel = Waiting(ctx, cmp.Or(t.Patience, DecideWait))
}

func (t *turn) knows(rec *store.Record) {
	if t.s.Record, t.s.Remote = rec, nil; rec != nil {
		t.s.First = rec.AttemptID
	}
}

func (t *turn) unlock() {
	if t.lock != nil {
		t.lock.Unlock()
		t.lock = nil
	}
}

// next takes the lock of a task with a record, reads the record again, and decides.
func (t *turn) next(ctx context.Context) (Action, error) {
	t.s.Time = time.Now()
	if !t.locks() {
		return Next(t.s)
	}
	id := t.s.Task
	lock, err := t.Store.TryLock(id)
	if t.s.Held = errors.Is(err, store.ErrLocked); err != nil && !t.s.Held {
		return Action{}, err
	}
	t.lock, t.s.Runs = lock, false
	if ctx.Err() != nil {
		return Action{}, ErrLeft
	}
	if t.s.Record, err = t.Store.Load(id); err == nil && lock != nil {
		err = t.Store.Mend(t.s.Record)
	}
	if err != nil {
		return Action{}, err
	}
	return Next(t.s)
}

// locks reports whether the lock must be taken: if the command may start a box, or collect the result of one.
func (t *turn) locks() bool {
	switch rec := t.s.Record; {
	case rec == nil, t.lock != nil, t.s.DryRun, t.s.OnlyNew():
		return false
	case t.s.Verb == Read, t.s.Verb == OpenPR:
		return !rec.Collected
	}
	return true
}

// prepare does all of an action except to start a box. over reports that no decision follows.
func (t *turn) prepare(ctx context.Context, a Action) (out Outcome, over bool, err error) {
	out = Outcome{Do: a.Do, Record: t.s.Record, Until: a.Until, Says: a.Says}
	switch a.Do {
	case AwaitLock:
		if Pause(t.wait, LockPause); t.wait.Err() != nil {
			return out, true, GaveUp(t.wait, t.Store.LockPath(t.s.Task), t.s.Task)
		}
		return out, false, nil
	case AwaitLimit:
		return out, false, t.awaitLimit(ctx, a)
	case Collect:
		err = t.Boxes.Collect(ctx, t.s.Record)
		if t.s.Runs = errors.Is(err, launch.ErrRunning); t.s.Runs {
			err = nil
		}
		return out, false, err
	case AskRemote:
		t.s.Remote = t.Project.Ask(ctx, t.s)
		if t.s.Record != nil {
			t.s.OrderText, t.s.OrderTextErr = outcome.TaskText(t.s.Record)
		}
		return out, false, nil
	case Begin:
		out.Job, err = t.Project.New(ctx, t.s, a.Attempt)
	case BeginAgain, GoOn:
		out.Job, err = t.job(ctx, a)
	case LookAtPull:
		t.unlock()
		t.s.Pull, err = t.Opening.look(ctx, t.s.Record)
		return out, false, err
	case Open:
		out.PR, out.Warnings, err = t.Opening.open(ctx, t.s.Record)
	case Follow:
		if t.unlock(); !t.Detach {
			out.Result, err = t.Boxes.Watch(ctx, t.s.Record)
		}
	case ReportRemote:
		out.Record, out.Result = nil, t.s.Remote.result()
	}
	return out, true, err
}

// limitPoll bounds each timer of a wait: timers stand still while the machine is suspended.
const limitPoll = 30 * time.Second

// awaitLimit waits until a parked task can continue. It releases the lock, so the task may have changed since.
func (t *turn) awaitLimit(ctx context.Context, a Action) error {
	t.unlock()
	t.Waits(a)
	for left := time.Until(a.Until); left > 0; left = time.Until(a.Until) {
		if Pause(ctx, min(left, limitPoll)); ctx.Err() != nil {
			return ErrLeft
		}
	}
	t.s.Waited, t.s.Remote = t.s.Waited || a.Unknown, nil // only once: the next attempt shows whether the limit still holds
	t.patience(ctx)
	return nil
}

func (t *turn) job(ctx context.Context, a Action) (*job.Job, error) {
	job, err := t.Project.Job(ctx, t.s, a)
	if err != nil {
		return nil, err
	}
	job.Attempt = a.Attempt.Number
	if a.Attempt.Lost {
		job.Warnings = append(job.Warnings, "nothing of the last attempt is on the remote: the task starts again")
	}
	job.Warnings = append(job.Warnings, t.s.Remote.warnings(t.s.Record, t.s.Time)...)
	if t.s.Record != nil && !t.s.DryRun {
		job.Order.SpentUSDByAttempt = t.s.Remote.uncounted(outcome.Spent(t.s.Record))
	}
	return job, nil
}

func (t *turn) start(ctx context.Context, out *Outcome) (err error) {
	if t.s.Record == nil {
		out.Result, err = t.Boxes.Run(ctx, out.Job)
	} else {
		out.Result, err = t.Boxes.Resume(ctx, out.Job, t.s.Record)
	}
	return err
}

// overtaken reports whether another command began the task first: then it reads its record.
func (t *turn) overtaken(ctx context.Context, err error) bool {
	if !errors.Is(err, store.ErrExists) || t.s.Record != nil || t.s.OnlyNew() {
		return false
	}
	wait, cancel := Waiting(ctx, cmp.Or(t.Patience, MoveWait))
	defer cancel()
	for wait.Err() == nil {
		if rec, err := t.Store.Load(t.s.Task); err == nil {
			t.knows(rec)
			t.patience(ctx)
			return true
		}
		Pause(wait, LockPause)
	}
	return false
}

const (
	// limitFirst is the first wait for a limit whose end is unknown: longer than a throttle, shorter than the shortest window
	// of providers, which is hours. Each attempt that ends at the limit doubles the wait, up to limitMost.
	limitFirst = 5 * time.Minute
	limitMost  = time.Hour
	// limitLeast is the shortest wait, also for an attempt that ended long ago: the user gave --wait because there is a limit.
	limitLeast = time.Minute
)

// backOff is when a task continues that was parked without a known time, the given number of times in a row.
func backOff(ended time.Time, times int, now time.Time) time.Time {
	wait := limitFirst
	for ; times > 1 && wait < limitMost; times-- {
		wait *= 2
	}
	at := ended.Add(min(wait, limitMost))
	if ended.IsZero() || ended.After(now) {
		at = now.Add(min(wait, limitMost))
	}
	if least := now.Add(limitLeast); at.Before(least) {
		return least
	}
	return at
}

const (
	// LockPause is the pause between two tries to lock a task that another command is deciding on.
	LockPause = 100 * time.Millisecond
	// DecideWait bounds the wait for another command's decision: it asks a remote and a forge, each within
	// seconds, and may first finish an engine's slow copy of an output.
	DecideWait = 3 * time.Minute
	// MoveWait bounds the wait for a command that renames a few files of a task.
	MoveWait = 30 * time.Second
)

// ErrLeft ends a command that the user interrupted while it waited.
var ErrLeft = errors.New("left")

// errHeld ends the wait for another command.
var errHeld = errors.New("another command holds the task and does not go on with it")

// Waiting bounds the wait for another command's decision.
func Waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: waited for %s", errHeld, most))
}

// GaveUp is the error of a wait without success: the user interrupted it, or it took too long.
func GaveUp(ctx context.Context, lockPath, id string) error {
	if err := context.Cause(ctx); errors.Is(err, errHeld) {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s: %w", id, err),
			"`fuser "+lockPath+"` names the process: end it, then try again")
	}
	return ErrLeft
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Said are the user's own settings of this run.
type Said struct {
	Given   map[string]string // the given flags, each with its source
	Out     string            // the absolute path of the output folder; empty if not given
	Network string
}

func (s Said) given(flag string) bool { _, given := s.Given[flag]; return given }

// Remember is the part of the last attempt's request that this command does not replace. An empty project file means the
// given one, the one that is found, or for a detected project none.
func Remember(verb Verb, rec *store.Record, said Said) (store.Request, error) {
	if said.Out != "" && filepath.Join(said.Out, rec.TaskID) != rec.Dir {
		return store.Request{}, fault.New(workorder.ExitUsage, fmt.Errorf("the output of %s lies in %s: all attempts of a task lie together, "+
			"leave out --out", rec.TaskID, rec.Dir), "")
	}
	was := store.Request{Overrides: Overrides(rec.Request.Overrides, said)}
	switch {
	case said.given("project"):
	case rec.Request.ProjectBy == store.Detected:
		was.ProjectBy = store.Detected
	case rec.Request.ProjectFile != "":
		was.ProjectFile, was.ProjectBy = rec.Request.ProjectFile, rec.Request.ProjectBy
	case verb != Create:
		return store.Request{}, fault.New(workorder.ExitNoProject, fmt.Errorf("the project file of task %s is not recorded", rec.TaskID),
			GiveProject)
	}
	return was, nil
}

// GiveProject is the hint for a task whose project cannot be read.
const GiveProject = "give the project: --project"

// Overrides are the flags of an earlier command that still hold for this one.
func Overrides(was map[string]string, said Said) map[string]string {
	hold := map[string]string{}
	for flag, value := range was {
		switch {
		case said.given(flag):
		case flag == "allow" && said.given("network") && said.Network != string(workorder.NetworkRestricted): // that mode has no rules
		default:
			hold[flag] = value
		}
	}
	return hold
}

// CheckBranch refuses a branch that cannot be the task's.
func (a Asked) CheckBranch() error {
	if a.Branch != "" && !workorder.OwnBranch(a.Task, a.Branch) {
		return fault.New(workorder.ExitUsage, fmt.Errorf("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", a.Branch,
			a.Task, a.Task), "")
	}
	return nil
}

// UnknownHere is the error for a task without a record here; it names what is needed to find the task on its remote.
func UnknownHere(id, give string) error {
	return fault.New(workorder.ExitNotFound, fmt.Errorf("task %s is not known on this machine", id),
		"`sandbox-agent ps --all` lists the tasks of this machine; if another one began it, give "+give)
}

// PullOf decides which pull request's feedback a revise takes: the given one, else the recorded one. It is 0 if the feedback is
// in a file. rec is nil for a task that this machine does not know.
func PullOf(id string, rec *store.Record, said int, file bool) (int, error) {
	switch {
	case said != 0 || file:
		return said, nil
	case rec == nil: // its pull request is recorded only on the machine that began it
		return 0, UnknownHere(id, "its pull request and project: --pr N --project P")
	}
	if recorded := pullNumber(rec); recorded != 0 {
		return recorded, nil
	}
	return 0, fault.New(workorder.ExitUsage, errors.New("the pull request of task "+id+" is not known here"),
		"give it: --pr N; or feedback of your own: --feedback-file; `sandbox-agent pr open "+id+"` opens one")
}
