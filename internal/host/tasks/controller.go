package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Store is the part of the state directory that a Controller needs.
type Store interface {
	Load(id string) (*taskstore.Record, error)
	TryLock(id string) (*taskstore.Lock, error)
	LockPath(id string) string
	// FinishMove completes a change of the record that a dead process left unfinished.
	FinishMove(rec *taskstore.Record) error
}

// AttemptRunner runs attempts and collects their results.
type AttemptRunner interface {
	// Run starts the first attempt that this machine knows.
	Run(ctx context.Context, job *job.Job) (*workorder.Result, error)
	// Resume starts the attempt after the one in last, whose lock the caller holds.
	Resume(ctx context.Context, job *job.Job, last *taskstore.Record) (*workorder.Result, error)
	// Watch follows the box of the last attempt to its end.
	Watch(ctx context.Context, rec *taskstore.Record) (*workorder.Result, error)
	// Collect collects the result of a box that has ended. It returns launch.ErrRunning for one that has not.
	Collect(ctx context.Context, rec *taskstore.Record) error
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

// Controller executes what Next decides.
type Controller struct {
	Store    Store
	Attempts AttemptRunner
	Project  Project
	PROpener *PROpener    // only OpenPR has one
	Waits    func(Action) // called before each wait for a provider's limit
	// Detach makes Run return while the box runs.
	Detach bool
	// Patience overrides the bounds of waits for another command; 0 keeps them.
	Patience time.Duration
}

// Outcome is the final action of a request and its results.
type Outcome struct {
	Kind    ActionKind
	Until   time.Time         // when the limit of a reported task resets; zero if it is not parked
	Message string            // the text of ActionNone
	Record  *taskstore.Record // of ActionFollow and ActionReport
	Job     *job.Job          // of ActionBegin, ActionRestart and ActionContinue; a dry run ends with it
	// Result is nil for a running box, a dry run and ActionReport, whose result is in the record's directory.
	Result   *workorder.Result
	PR       *workorder.PR // of ActionOpenPR
	Warnings []string      // of ActionOpenPR; also if it failed
}

// Run carries out the user's request.
func (c *Controller) Run(ctx context.Context, s State) (Outcome, error) {
	t := &request{Controller: c, s: s}
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

// request is the state of one command.
type request struct {
	*Controller
	s      State
	lock   *taskstore.Lock
	wait   context.Context // for the wait for another command's decision
	cancel context.CancelFunc
}

// patience restarts the bound on the wait for another command.
func (t *request) patience(ctx context.Context) {
	if t.cancel != nil {
		t.cancel()
	}
	t.wait, t.cancel = WithLockTimeout(ctx, cmp.Or(t.Patience, DecideWait))
}

func (t *request) knows(rec *taskstore.Record) {
	if t.s.Record, t.s.Remote = rec, nil; rec != nil {
		t.s.LastAtStart = rec.AttemptID
	}
}

func (t *request) unlock() {
	if t.lock != nil {
		t.lock.Unlock()
		t.lock = nil
	}
}

// next takes the lock of a task with a record, reads the record again, and decides.
func (t *request) next(ctx context.Context) (Action, error) {
	t.s.Time = time.Now()
	if !t.locks() {
		return Next(t.s)
	}
	id := t.s.Task
	lock, err := t.Store.TryLock(id)
	if t.s.Locked = errors.Is(err, taskstore.ErrLocked); err != nil && !t.s.Locked {
		return Action{}, err
	}
	t.lock, t.s.BoxRunning = lock, false
	if ctx.Err() != nil {
		return Action{}, ErrInterrupted
	}
	if t.s.Record, err = t.Store.Load(id); err == nil && lock != nil {
		err = t.Store.FinishMove(t.s.Record)
	}
	if err != nil {
		return Action{}, err
	}
	return Next(t.s)
}

// locks reports whether the command needs the lock, to start a box or to collect a result.
func (t *request) locks() bool {
	switch rec := t.s.Record; {
	case rec == nil, t.lock != nil, t.s.DryRun, t.s.OnlyNew():
		return false
	case t.s.Verb == Read, t.s.Verb == OpenPR:
		return !rec.Collected
	}
	return true
}

// prepare does what an action needs before a box starts. over reports that no decision follows.
func (t *request) prepare(ctx context.Context, a Action) (out Outcome, over bool, err error) {
	out = Outcome{Kind: a.Kind, Record: t.s.Record, Until: a.Until, Message: a.Message}
	switch a.Kind {
	case ActionAwaitLock:
		if Pause(t.wait, LockPause); t.wait.Err() != nil {
			return out, true, LockTimeoutError(t.wait, t.Store.LockPath(t.s.Task), t.s.Task)
		}
		return out, false, nil
	case ActionAwaitLimit:
		return out, false, t.awaitLimit(ctx, a)
	case ActionCollect:
		err = t.Attempts.Collect(ctx, t.s.Record)
		if t.s.BoxRunning = errors.Is(err, launch.ErrRunning); t.s.BoxRunning {
			err = nil
		}
		return out, false, err
	case ActionReadRemote:
		t.s.Remote = t.Project.Ask(ctx, t.s)
		if t.s.Record != nil {
			t.s.OrderText, t.s.OrderTextErr = outcome.TaskText(t.s.Record)
		}
		return out, false, nil
	case ActionBegin:
		out.Job, err = t.Project.New(ctx, t.s, a.Attempt)
	case ActionRestart, ActionContinue:
		out.Job, err = t.job(ctx, a)
	case ActionReadPR:
		t.unlock()
		t.s.PR, err = t.PROpener.look(ctx, t.s.Record)
		return out, false, err
	case ActionOpenPR:
		out.PR, out.Warnings, err = t.PROpener.open(ctx, t.s.Record)
	case ActionFollow:
		if t.unlock(); !t.Detach {
			out.Result, err = t.Attempts.Watch(ctx, t.s.Record)
		}
	case ActionReportRemote:
		out.Record, out.Result = nil, t.s.Remote.result()
	}
	return out, true, err
}

// limitPoll bounds each timer, because timers stand still while the machine is suspended.
const limitPoll = 30 * time.Second

// awaitLimit waits until a parked task can continue. It releases the lock, so the task may change.
func (t *request) awaitLimit(ctx context.Context, a Action) error {
	t.unlock()
	t.Waits(a)
	for left := time.Until(a.Until); left > 0; left = time.Until(a.Until) {
		if Pause(ctx, min(left, limitPoll)); ctx.Err() != nil {
			return ErrInterrupted
		}
	}
	t.s.WaitedOnce, t.s.Remote = t.s.WaitedOnce || a.Unknown, nil // only once: the next attempt shows whether the limit still holds
	t.patience(ctx)
	return nil
}

func (t *request) job(ctx context.Context, a Action) (*job.Job, error) {
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

func (t *request) start(ctx context.Context, out *Outcome) (err error) {
	if t.s.Record == nil {
		out.Result, err = t.Attempts.Run(ctx, out.Job)
	} else {
		out.Result, err = t.Attempts.Resume(ctx, out.Job, t.s.Record)
	}
	return err
}

// overtaken reports whether another command began the task first; it then reads that command's record.
func (t *request) overtaken(ctx context.Context, err error) bool {
	if !errors.Is(err, taskstore.ErrExists) || t.s.Record != nil || t.s.OnlyNew() {
		return false
	}
	wait, cancel := WithLockTimeout(ctx, cmp.Or(t.Patience, MoveWait))
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
	// limitFirst is the first wait for a limit whose end is unknown: longer than a throttle, shorter than a provider's shortest
	// window. Each further attempt that ends at the limit doubles it, up to limitMost.
	limitFirst = 5 * time.Minute
	limitMost  = time.Hour
	limitLeast = time.Minute // the shortest wait, also after an attempt that ended long ago
)

// backOff returns when a task continues after that many attempts in a row that ended at a limit without a known end.
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

// Waits for other commands.
const (
	// LockPause is the pause between two tries to lock a task that another command is deciding on.
	LockPause = 100 * time.Millisecond
	// DecideWait bounds the wait for another command's decision, which asks a remote and a forge and may finish copying an output.
	DecideWait = 3 * time.Minute
	MoveWait   = 30 * time.Second // bounds the wait for a command that renames a task's files
)

// ErrInterrupted ends a command that the user interrupted while it waited.
var ErrInterrupted = errors.New("left")

// errLockHeld means that another command holds the task's lock.
var errLockHeld = errors.New("another command holds the task and does not continue it")

// WithLockTimeout bounds the wait for another command's decision.
func WithLockTimeout(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: waited for %s", errLockHeld, most))
}

// LockTimeoutError is the error of a wait without success: the user interrupted it, or it took too long.
func LockTimeoutError(ctx context.Context, lockPath, id string) error {
	if err := context.Cause(ctx); errors.Is(err, errLockHeld) {
		return exiterr.New(workorder.ExitGeneral, fmt.Errorf("task %s: %w", id, err),
			"`fuser "+lockPath+"` names the process: end it, then try again")
	}
	return ErrInterrupted
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// GivenFlags are the flags that the user gave.
type GivenFlags struct {
	Given   map[string]string // the given flags, each with its source
	Out     string            // absolute path of the output directory; "" if not given
	Network string
}

func (s GivenFlags) given(flag string) bool { _, given := s.Given[flag]; return given }

// Remember returns the last attempt's request, without what this command replaces. An empty project file means the given
// one, the found one, or none for a detected project.
func Remember(verb Verb, rec *taskstore.Record, said GivenFlags) (taskstore.Request, error) {
	if said.Out != "" && filepath.Join(said.Out, rec.TaskID) != rec.Dir {
		return taskstore.Request{}, exiterr.New(workorder.ExitUsage,
			fmt.Errorf("the output of %s is in %s: all attempts of a task share a directory, "+
				"leave out --out", rec.TaskID, rec.Dir), "")
	}
	was := taskstore.Request{Overrides: Overrides(rec.Request.Overrides, said)}
	switch {
	case said.given("project"):
	case rec.Request.ProjectBy == taskstore.Detected:
		was.ProjectBy = taskstore.Detected
	case rec.Request.ProjectFile != "":
		was.ProjectFile, was.ProjectBy = rec.Request.ProjectFile, rec.Request.ProjectBy
	case verb != Create:
		return taskstore.Request{}, exiterr.New(workorder.ExitNoProject, fmt.Errorf("the project file of task %s is not recorded", rec.TaskID),
			GiveProject)
	}
	return was, nil
}

// GiveProject is the hint for a task whose project cannot be read.
const GiveProject = "give the project: --project"

// Overrides returns the flags of an earlier command that still apply.
func Overrides(was map[string]string, said GivenFlags) map[string]string {
	hold := map[string]string{}
	for flag, value := range was {
		switch {
		case said.given(flag):
		case flag == "allow" && said.given("network") && said.Network != string(workorder.NetworkRestricted): // only that mode has rules
		default:
			hold[flag] = value
		}
	}
	return hold
}

// CheckBranch refuses a branch that cannot be the task's.
func (a Request) CheckBranch() error {
	if a.Branch != "" && !workorder.OwnBranch(a.Task, a.Branch) {
		return exiterr.New(workorder.ExitUsage,
			fmt.Errorf("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", a.Branch,
				a.Task, a.Task), "")
	}
	return nil
}

// UnknownTaskError is the error of a task without a record here; its hint says how to find it on its remote.
func UnknownTaskError(id, give string) error {
	return exiterr.New(workorder.ExitNotFound, fmt.Errorf("task %s is not known on this machine", id),
		"`sandbox-agent ps --all` lists the tasks of this machine; if another one began it, give "+give)
}

// PRNumber returns the pull request of a revise: the given or the recorded one, or 0 for feedback from a file. rec may be nil.
func PRNumber(id string, rec *taskstore.Record, said int, file bool) (int, error) {
	switch {
	case said != 0 || file:
		return said, nil
	case rec == nil: // the pull request is recorded only on the machine that created it
		return 0, UnknownTaskError(id, "its pull request and project: --pr N --project P")
	}
	if recorded := pullNumber(rec); recorded != 0 {
		return recorded, nil
	}
	return 0, exiterr.New(workorder.ExitUsage, errors.New("the pull request of task "+id+" is not known here"),
		"give it: --pr N; or feedback of your own: --feedback-file; `sandbox-agent pr open "+id+"` opens one")
}
