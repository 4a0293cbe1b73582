package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Tasks creates, continues and reads the tasks of a state directory.
type Tasks struct {
	*Env
	// Resolver finds projects. Only the methods that start an attempt or read an issue need it.
	Resolver *resolve.Resolver
	// Show returns the receiver of an attempt's events, and a function to call after the last one. The start is nil
	// for an attempt that runs already. If Show is nil, events are dropped.
	Show func(context.Context, *AttemptStart) (event func(workorder.Event), done func())
	// Found, if not nil, is called with what a repository without a project file was found to need.
	Found func(Findings)
	// Waits, if not nil, is called before each wait for a provider's limit. guessed reports that the end of the limit is unknown.
	Waits func(task string, until time.Time, guessed bool)
}

// AttemptStart describes an attempt before its first event.
type AttemptStart struct {
	TaskID, Project string
	Repo            string // without credentials; "" without a repository
	Detach          bool
	Notes           []string // decisions that were made for it
}

// DetectReport is what was found in a repository, for programs.
type DetectReport = detect.Report

// Findings are what a repository without a project file was found to need, with the lines that say so.
type Findings struct {
	*DetectReport
	HasCheck, HasTest bool
}

// TaskRequest asks for a new task, or for the next attempt of one.
type TaskRequest struct {
	// Request has the task's id, or its beginning for a task that exists. The methods of Tasks set Verb.
	tasks.Request
	Flags    resolve.Flags
	Title    string              // the task in its own words, if its text has more; may be empty
	Pull     int                 // number of the task's pull request; 0 if not given
	Feedback *tasks.FeedbackFile // replaces the feedback on the pull request, if not nil
	Rebase   *workorder.Rebase   // of Rebase
}

// TaskOutcome is the outcome of a request.
type TaskOutcome struct {
	tasks.Outcome
	tasks.Request                   // with the whole id
	Resolved      *resolve.Resolved // nil if the project was not loaded
}

// Reported reports that no attempt was started: Report has the result of the last one.
func (o TaskOutcome) Reported() bool {
	return o.Kind == tasks.ActionReport || o.Kind == tasks.ActionReportRemote
}

// Followed reports that the task ran already, and was followed.
func (o TaskOutcome) Followed() bool { return o.Kind == tasks.ActionFollow }

// Report returns the result of the last attempt.
func (o TaskOutcome) Report() (TaskResult, error) {
	if o.Record == nil { // another machine has the record
		return TaskResult{Result: o.Result}, nil
	}
	res, err := outcome.ReadResult(o.Record)
	return resultOf(o.Record, res), err
}

// Follows returns the result of the task that was followed.
func (o TaskOutcome) Follows() TaskResult { return resultOf(o.Record, o.Result) }

// Tasks returns the use cases of tasks that start no attempt.
func (e *Env) Tasks() *Tasks { return &Tasks{Env: e} }

// Create runs a new task. With IfExists, it follows, continues or reports one that exists.
func (t *Tasks) Create(ctx context.Context, r TaskRequest) (TaskOutcome, error) {
	r.Verb = tasks.Create
	if err := CheckTaskText(r.Text); err != nil {
		return TaskOutcome{}, err
	}
	var st *taskstore.Store
	var rec *taskstore.Record
	r.Fresh = r.Task == ""
	switch {
	case r.Fresh:
		r.Task = workorder.NewTaskID()
	case !workorder.ValidTaskID(r.Task):
		return TaskOutcome{}, Usagef("task id %q: must be T- and 8 of 0-9A-Z", r.Task)
	default:
		var err error
		if st, err = t.Store(); err != nil {
			return TaskOutcome{}, err
		}
		if rec, err = st.Load(r.Task); err != nil && !errors.Is(err, taskstore.ErrNotFound) {
			return TaskOutcome{}, err
		}
	}
	return t.newJob(r).run(ctx, st, rec)
}

// Continue starts the next attempt of a task whose last one has ended. Without an id it is the last task of the repository in the
// current directory that can continue, and outside of any repository the last one of all.
func (t *Tasks) Continue(ctx context.Context, r TaskRequest) (TaskOutcome, error) {
	r.Verb = tasks.Continue
	if r.Task == "" {
		var err error
		if r.Task, err = t.Works().continuable(ctx, r.Text); err != nil {
			return TaskOutcome{}, err
		}
	}
	p := t.newJob(r)
	rec, err := p.knownHere(ctx)
	return p.runKnown(ctx, rec, err)
}

// Revise lets the agent address the feedback on the task's pull request.
func (t *Tasks) Revise(ctx context.Context, r TaskRequest) (TaskOutcome, error) {
	r.Verb = tasks.Revise
	if r.Feedback != nil {
		switch intro := r.Feedback.Intro; {
		case r.Text == "":
			r.Text = intro
		case intro != "":
			r.Text = intro + "\n\n" + r.Text
		}
	}
	p := t.newJob(r)
	rec, err := p.findPull(ctx)
	return p.runKnown(ctx, rec, err)
}

// Rebase moves the commits of a task's branch onto the newest commit of its base.
func (t *Tasks) Rebase(ctx context.Context, r TaskRequest) (TaskOutcome, error) {
	r.Verb = tasks.Rebase
	p := t.newJob(r)
	rec, err := p.taskOf(ctx, r.Pull)
	return p.runKnown(ctx, rec, err)
}

// refusal returns the error with which the engine would refuse to run the job.
func refusal(ctx context.Context, t *Tasks, j *job.Job) error {
	be, err := t.Engine()
	if err != nil {
		return err
	}
	if _, err := launch.CheckEngine(ctx, be.Engine, j); err != nil {
		return err
	}
	return launch.CheckImage(ctx, be.Engine, j.Order.Image)
}

// OpenPR opens the pull request of a task whose run could not open it.
func (t *Tasks) OpenPR(ctx context.Context, id string, draft bool, base string) (tasks.Outcome, error) {
	_, rec, err := t.Find(ctx, id)
	if err != nil {
		return tasks.Outcome{}, err
	}
	connect := func(ctx context.Context, order *workorder.Order) (tasks.PRClient, error) { return t.forge(ctx, order) }
	return readTask(ctx, t, tasks.OpenPR, rec, &tasks.PROpener{Draft: draft, Base: base, Connect: connect})
}

// Collect collects the result of a task whose own command has died, and returns its new record.
func (t *Tasks) Collect(ctx context.Context, rec *taskstore.Record) (*taskstore.Record, error) {
	out, err := readTask(ctx, t, tasks.Read, rec, nil)
	return out.Record, err
}

func readTask(
	ctx context.Context, t *Tasks, verb tasks.Verb, rec *taskstore.Record, opening *tasks.PROpener,
) (out tasks.Outcome, err error) {
	st, err := t.Store()
	if err != nil {
		return out, err
	}
	flow := &tasks.Controller{Store: st, Attempts: &attemptRunner{t: t}, PROpener: opening}
	return flow.Run(ctx, tasks.State{Request: tasks.Request{Verb: verb, Task: rec.TaskID}, Record: rec})
}

// StopTimeout is the time that a task has to push its work when it is stopped.
const StopTimeout = runtime.StopTimeout

// stopping stops tasks. It opens the engine when there is a box to stop.
func (t *Tasks) stopping(st *taskstore.Store) *tasks.Stopper {
	return &tasks.Stopper{Store: st, Attempts: &attemptRunner{t: t}, Patience: t.Patience}
}

// Stop stops a task and collects its result. After the timeout it kills its sandbox.
func (t *Tasks) Stop(ctx context.Context, id string, timeout time.Duration) (s TaskState, err error) {
	st, rec, err := t.Find(ctx, id)
	if err == nil {
		rec, err = t.stopping(st).Run(ctx, rec, timeout)
	}
	if err != nil {
		return s, err
	}
	s, _ = t.State(ctx, rec) // that of a task that has ended needs no engine
	return s, nil
}

// Replay shows the recorded events of an attempt, up to now if it runs.
func (t *Tasks) Replay(ctx context.Context, rec *taskstore.Record, show func(workorder.Event)) error {
	if rec.Collected {
		return outcome.Recorded(rec, show)
	}
	l, err := openLauncher(t, show)
	if err != nil {
		return err
	}
	return l.Replay(ctx, rec)
}

// Follow shows the events of an attempt that runs, until its end, and collects its result.
func (t *Tasks) Follow(ctx context.Context, rec *taskstore.Record, show func(workorder.Event)) (TaskResult, error) {
	l, err := openLauncher(t, show)
	if err != nil {
		return TaskResult{}, err
	}
	res, err := l.Watch(ctx, rec)
	return resultOf(rec, res), err
}

// TaskStreams are the streams of a command in a task's sandbox.
type TaskStreams struct {
	Stdout, Stderr io.Writer
	Term           string              // kind of the terminal, as TERM names it
	Resized        <-chan sandbox.Size // later sizes of the terminal; nil if it keeps the first
}

// Exec runs a command in a task's running sandbox; without arguments, the user's shell.
func (t *Tasks) Exec(ctx context.Context, id string, c sandbox.Command, s TaskStreams) (code int, err error) {
	if len(c.Argv) > 0 {
		if err := c.Check(); err != nil {
			return 0, SandboxError(err)
		}
	}
	shell := launch.ShellCommand{Argv: c.Argv, Stdin: c.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Term: s.Term}
	if c.Dir != "" || len(c.Env) > 0 {
		shell.Argv = []string{"env"}
		if c.Dir != "" {
			shell.Argv = append(shell.Argv, "-C", c.Dir)
		}
		shell.Argv = slices.Concat(shell.Argv, c.Env, c.Argv)
	}
	if c.Terminal != nil {
		ended, end := context.WithCancel(ctx)
		defer end()
		shell.Terminal = &runtime.Terminal{Size: runtimeSize(*c.Terminal), Resized: runtimeSizes(ended, s.Resized)}
	}
	st, rec, err := t.Find(ctx, id)
	if err != nil {
		return 0, err
	}
	be, err := t.Engine()
	if err != nil {
		return 0, err
	}
	var box *runtime.Instance
	if !rec.Collected {
		if box, err = t.launcher(be, st, nil).Find(ctx, rec); err != nil {
			return 0, err
		}
	}
	return launch.RunShell(ctx, be.Engine, rec.TaskID, box, shell)
}

func runtimeSize(s sandbox.Size) runtime.Size {
	return runtime.Size{Width: uint(s.Cols), Height: uint(s.Rows)}
}

// runtimeSizes passes sizes on until ctx ends.
func runtimeSizes(ctx context.Context, sizes <-chan sandbox.Size) <-chan runtime.Size {
	out := make(chan runtime.Size)
	go func() {
		for {
			select {
			case s := <-sizes:
				select {
				case out <- runtimeSize(s):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// CheckTaskText returns a usage error for a text that no task can have.
func CheckTaskText(text string) error {
	switch {
	case len(text) > workorder.MaxTask:
		return Usagef("the task has more than %d bytes", workorder.MaxTask)
	case !utf8.ValidString(text):
		return Usagef("the task is not valid UTF-8 text")
	case strings.ContainsRune(text, 0):
		return Usagef("the task contains a NUL byte")
	case strings.TrimSpace(text) == "":
		return Usagef("the task is empty")
	}
	return nil
}

// MaxFeedback bounds a text with feedback, in bytes.
const MaxFeedback = tasks.MaxFeedback

// ParseFeedback reads feedback: each entry of the text's outermost lists is an item.
func ParseFeedback(text string) (*tasks.FeedbackFile, error) {
	switch {
	case len(text) > MaxFeedback:
		return nil, Usagef("the feedback has more than %d bytes", MaxFeedback)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, Usagef("the feedback is not text: it must be UTF-8 without NUL bytes")
	}
	file := tasks.ParseFeedback(text)
	return &file, nil
}

// Find finds a task by its id or the beginning of it.
func (t *Tasks) Find(ctx context.Context, id string) (*taskstore.Store, *taskstore.Record, error) {
	if err := CheckTask(id); err != nil {
		return nil, nil, err
	}
	st, err := t.Store()
	if err != nil {
		return nil, nil, err
	}
	rec, err := st.Find(id)
	if err == nil && rec.Moving != 0 {
		rec, err = completeMove(ctx, t, st, rec)
	}
	if errors.Is(err, taskstore.ErrNotFound) {
		err = unknownOf(ctx, t.Env, kindTask, id, err)
	}
	return st, rec, err
}

// completeMove returns the record of a task after its output was moved, and completes the move of a dead command, and waits for
// a living one.
func completeMove(ctx context.Context, t *Tasks, st *taskstore.Store, rec *taskstore.Record) (*taskstore.Record, error) {
	wait, cancel := tasks.WithLockTimeout(ctx, cmp.Or(t.Patience, tasks.MoveWait))
	defer cancel()
	for rec.Moving != 0 {
		lock, err := st.TryLock(rec.TaskID)
		switch {
		case errors.Is(err, taskstore.ErrLocked):
			if tasks.Pause(wait, tasks.LockPause); wait.Err() != nil {
				return nil, tasks.LockTimeoutError(wait, st.LockPath(rec.TaskID), rec.TaskID)
			}
		case err != nil:
			return nil, err
		}
		if rec, err = st.Load(rec.TaskID); err == nil && lock != nil {
			err = st.FinishMove(rec)
		}
		if lock != nil {
			lock.Unlock()
		}
		if err != nil {
			return nil, err
		}
	}
	return rec, nil
}

func (t *Tasks) newJob(r TaskRequest) *jobBuilder {
	r.DryRun = r.Flags.DryRun
	find := credentials.New(t.Getenv)
	return &jobBuilder{t: t, TaskRequest: r, find: find, boxes: &attemptRunner{t: t, find: find}}
}

// isSetting reports whether a flag replaces a value of the project.
func isSetting(flag string) bool {
	return slices.ContainsFunc(resolve.Settings(), func(s resolve.Setting) bool { return s.Flag == flag })
}
