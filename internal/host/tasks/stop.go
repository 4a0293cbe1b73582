package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nextStop decides the next step of stopping a task. If a finished task is locked, a command decides whether to continue
// it: its next box may start in a moment.
func nextStop(collected, held bool) Do {
	switch {
	case !collected:
		return EndBox
	case held:
		return AwaitLock
	}
	return Report
}

// StopStore is the part of the state folder that stopping needs.
type StopStore interface {
	Store
	Held(id string) bool
}

// StopBoxes is the part of the engine that stopping needs.
type StopBoxes interface {
	// Stop asks a box to end within grace. It reports false if there is none yet.
	Stop(ctx context.Context, rec *store.Record, grace time.Duration) (bool, error)
	// Collect collects the result of a box that has ended.
	Collect(ctx context.Context, rec *store.Record) error
}

// Stopping stops a task, also one whose box is just being started.
type Stopping struct {
	Store StopStore
	Boxes StopBoxes
	// Patience overrides how long to wait for another command; DecideWait if 0.
	Patience time.Duration
}

// Run stops the task, collects its result and returns its record.
func (s *Stopping) Run(ctx context.Context, rec *store.Record, grace time.Duration) (*store.Record, error) {
	wait, cancel := Waiting(ctx, cmp.Or(s.Patience, DecideWait))
	defer cancel()
	for {
		switch nextStop(rec.Collected, s.Store.Held(rec.TaskID)) {
		case EndBox:
			return s.EndBox(ctx, rec, grace)
		case AwaitLock:
			if Pause(wait, LockPause); wait.Err() != nil {
				return nil, GaveUp(wait, s.Store.LockPath(rec.TaskID), rec.TaskID)
			}
		default:
			return rec, nil
		}
		var err error
		if rec, err = s.Store.Load(rec.TaskID); err != nil {
			return nil, err
		}
	}
}

// EndBox stops the box of a task and waits until its result is collected: by the command that follows it if that lives,
// else by this one.
func (s *Stopping) EndBox(ctx context.Context, rec *store.Record, grace time.Duration) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, grace+launch.CollectTimeout)
	defer cancel()
	stopped := false
	for {
		if !stopped {
			// Its command may change the state meanwhile, perhaps to the next attempt.
			fresh, err := s.Store.Load(rec.TaskID)
			if err != nil {
				return nil, err
			}
			if !fresh.Collected {
				rec = fresh
			}
			if stopped, err = s.Boxes.Stop(ctx, rec, grace); err != nil {
				return nil, err
			}
		}
		lock, err := s.Store.TryLock(rec.TaskID)
		switch {
		case err == nil:
			defer lock.Unlock()
			fresh, err := s.Store.Load(rec.TaskID)
			if err == nil && !fresh.Collected {
				err = s.Boxes.Collect(ctx, fresh)
			}
			return fresh, err
		case !errors.Is(err, store.ErrLocked):
			return nil, err
		}
		if Pause(ctx, LockPause); ctx.Err() != nil {
			return nil, fmt.Errorf("wait for the other command to collect %s: %w", rec.TaskID, ctx.Err())
		}
	}
}

// Why is the code of a refusal.
type Why string

// The reasons to refuse.
const (
	Exists          Why = "exists"
	ExistsElsewhere Why = "exists elsewhere"
	Running         Why = "running"
	StillRunning    Why = "still running"
	Done            Why = "done"
	Unknown         Why = "unknown"
	NoText          Why = "no text"
	IsPlan          Why = "is a plan"
	IsNoPlan        Why = "is no plan"
	OtherBranch     Why = "other branch"
	SeveralBranches Why = "several branches"
	NoBranch        Why = "no branch"
	StateUnreadable Why = "state unreadable"
	NoResult        Why = "no result"
	NothingToOpen   Why = "nothing to open"
	NoToken         Why = "no token"
)

// Refusal is the error for a request that the task's state does not allow. Its cause has exit code and hint.
type Refusal struct {
	Why Why
	Err *fault.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap gives the exit code and the hint.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse makes a Refusal. more has details that only the caller knows.
func (s State) Refuse(why Why, more ...string) error {
	id, run := s.Task, func(command string) string { return "`sandbox-agent " + command + " " + s.Task + "`" }
	code, hint := workorder.ExitGeneral, ""
	var err error
	switch why {
	case Exists:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s: %w", id, store.ErrExists)
		hint = run("continue") + " goes on with it, --if-exists continue does so by itself; " + run("rm") + " forgets it"
	case ExistsElsewhere:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s: %w: %s knows it", id, store.ErrExists, s.Remote.Repo)
		hint = run("continue") + " with the same project goes on with it, --if-exists continue does so by itself; or choose another --task-id"
	case Running:
		err = fmt.Errorf("task %s is running", id)
		hint = "follow it with " + run("logs -f") + ", or end it first with " + run("stop")
	case StillRunning:
		err, hint = fmt.Errorf("task %s is still running", id), "follow it with "+run("logs -f")
	case Done:
		err = fmt.Errorf("task %s is done (%s)", id, strings.Join(more, ""))
		hint = run("result") + " shows it; --task \"...\" adds to it"
	case Unknown:
		where := "the project has no repository"
		if s.Remote.Repo != "" {
			where = s.Remote.Repo + " has neither its branch nor its state"
		}
		code, err = workorder.ExitNotFound, fmt.Errorf("task %s is not known: this state folder does not have it, and %s", id, where)
		hint = "check the id and --repo; `sandbox-agent create --task-id " + id + "` starts it"
	case NoText:
		code, hint = workorder.ExitNotFound, "give the task's text: --task"
		err = fmt.Errorf("begin task %s again: the remote knows nothing of it, and its text is gone: %w", id, s.OrderTextErr)
	case IsPlan:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s is a plan, which cannot be continued", id)
		hint = run("create --from-plan") + " carries it out; `sandbox-agent create --plan` makes a new one"
	case IsNoPlan:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s was begun, and not as a plan", id)
		hint = "leave --plan out to go on with it, or choose another --task-id"
	case NoResult:
		err, hint = fmt.Errorf("task %s has no result: %w", id, s.Pull.NoResult), run("logs")+" shows how far it came"
	case NothingToOpen:
		err, hint = fmt.Errorf("there is nothing to open for task %s: %s", id, s.Pull.Nothing), run("result")+" shows its result"
	case NoToken:
		code, err = workorder.ExitGit, fmt.Errorf("there is no token for the forge of %s", s.Pull.Repo)
		hint = "set SANDBOX_AGENT_GIT_TOKEN (for GitHub also GH_TOKEN), log in with `gh auth login`, or name a GitHub App (docs/pull-requests.md)"
	default:
		code, hint, err = s.noBranch(why)
	}
	return &Refusal{Why: why, Err: &fault.Error{Code: code, Err: err, Hint: hint}}
}

func (s State) noBranch(why Why) (code int, hint string, err error) {
	id, on := s.Task, s.Remote
	switch why {
	case OtherBranch:
		return workorder.ExitUsage, "", fmt.Errorf("the branch of %s is %s, not %s", id, on.State.TargetBranch, s.named())
	case SeveralBranches:
		return workorder.ExitUsage, "name the one to go on with: --target-branch",
			fmt.Errorf("the remote has several branches of %s: %s", id, strings.Join(on.Branches, ", "))
	case StateUnreadable:
		return workorder.ExitGit, "name its branch: --target-branch",
			fmt.Errorf("the remote's state of %s cannot be read, and it has no branch of that task: %s", id, on.Warning)
	}
	return workorder.ExitGit, "name its branch and give its text: --target-branch, --task",
		fmt.Errorf("the remote has neither a state nor a branch of %s, only what was saved beside them", id)
}

// named is the branch that the user gave, else that of the record.
func (s State) named() string {
	if s.Branch == "" && s.Record != nil {
		return s.Record.TargetBranch
	}
	return s.Branch
}
