package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nextStop decides the next step of stopping a task. If a finished task is locked, a command may be about to start its next box.
func nextStop(collected, held bool) ActionKind {
	switch {
	case !collected:
		return ActionEndBox
	case held:
		return ActionAwaitLock
	}
	return ActionReport
}

// StopStore is the part of the state directory that stopping needs.
type StopStore interface {
	Store
	Locked(id string) bool
}

// AttemptStopper is the part of the engine that stopping needs.
type AttemptStopper interface {
	// Stop asks a box to end within grace. It returns false if there is no box yet.
	Stop(ctx context.Context, rec *taskstore.Record, grace time.Duration) (bool, error)
	// Collect collects the result of a box that has ended.
	Collect(ctx context.Context, rec *taskstore.Record) error
}

// Stopper stops a task, including one whose box is starting.
type Stopper struct {
	Store    StopStore
	Attempts AttemptStopper
	// Patience overrides the wait for another command; 0 means DecideWait.
	Patience time.Duration
}

// Run stops the task, collects its result and returns its record.
func (s *Stopper) Run(ctx context.Context, rec *taskstore.Record, grace time.Duration) (*taskstore.Record, error) {
	wait, cancel := WithLockTimeout(ctx, cmp.Or(s.Patience, DecideWait))
	defer cancel()
	for {
		switch nextStop(rec.Collected, s.Store.Locked(rec.TaskID)) {
		case ActionEndBox:
			return s.EndBox(ctx, rec, grace)
		case ActionAwaitLock:
			if Pause(wait, LockPause); wait.Err() != nil {
				return nil, LockTimeoutError(wait, s.Store.LockPath(rec.TaskID), rec.TaskID)
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

// EndBox stops a task's box and waits until its result is collected, by the command that follows it or by this one.
func (s *Stopper) EndBox(ctx context.Context, rec *taskstore.Record, grace time.Duration) (*taskstore.Record, error) {
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
			if stopped, err = s.Attempts.Stop(ctx, rec, grace); err != nil {
				return nil, err
			}
		}
		lock, err := s.Store.TryLock(rec.TaskID)
		switch {
		case err == nil:
			defer lock.Unlock()
			fresh, err := s.Store.Load(rec.TaskID)
			if err == nil && !fresh.Collected {
				err = s.Attempts.Collect(ctx, fresh)
			}
			return fresh, err
		case !errors.Is(err, taskstore.ErrLocked):
			return nil, err
		}
		if Pause(ctx, LockPause); ctx.Err() != nil {
			return nil, fmt.Errorf("wait for the other command to collect %s: %w", rec.TaskID, ctx.Err())
		}
	}
}

// RefusalCode is the code of a refusal.
type RefusalCode string

// The reasons to refuse.
const (
	RefusalExists          RefusalCode = "exists"
	RefusalExistsElsewhere RefusalCode = "exists elsewhere"
	RefusalRunning         RefusalCode = "running"
	RefusalStillRunning    RefusalCode = "still running"
	RefusalDone            RefusalCode = "done"
	RefusalUnknown         RefusalCode = "unknown"
	RefusalNoText          RefusalCode = "no text"
	RefusalPlan            RefusalCode = "is a plan"
	RefusalNotPlan         RefusalCode = "is no plan"
	RefusalOtherBranch     RefusalCode = "other branch"
	RefusalSeveralBranches RefusalCode = "several branches"
	RefusalNoBranch        RefusalCode = "no branch"
	RefusalStateUnreadable RefusalCode = "state unreadable"
	RefusalNoResult        RefusalCode = "no result"
	RefusalNothingToOpen   RefusalCode = "nothing to open"
	RefusalNoToken         RefusalCode = "no token"
)

// Refusal is the error of a request that the task's state does not allow. Its cause has an exit code and a hint.
type Refusal struct {
	Code RefusalCode
	Err  *exiterr.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap gives the exit code and the hint.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a Refusal. more has details that only the caller knows.
func (s State) Refuse(why RefusalCode, more ...string) error {
	id, run := s.Task, func(command string) string { return "`sandbox-agent " + command + " " + s.Task + "`" }
	code, hint := workorder.ExitGeneral, ""
	var err error
	switch why {
	case RefusalExists:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s: %w", id, taskstore.ErrExists)
		hint = run("continue") + " goes on with it, --if-exists continue does so by itself; " + run("rm") + " forgets it"
	case RefusalExistsElsewhere:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s: %w: %s knows it", id, taskstore.ErrExists, s.Remote.Repo)
		hint = run("continue") + " with the same project goes on with it, --if-exists continue does so by itself; or choose another --task-id"
	case RefusalRunning:
		err = fmt.Errorf("task %s is running", id)
		hint = "follow it with " + run("logs -f") + ", or end it first with " + run("stop")
	case RefusalStillRunning:
		err, hint = fmt.Errorf("task %s is still running", id), "follow it with "+run("logs -f")
	case RefusalDone:
		err = fmt.Errorf("task %s is done (%s)", id, strings.Join(more, ""))
		hint = run("result") + " shows it; --task \"...\" adds to it"
	case RefusalUnknown:
		where := "the project has no repository"
		if s.Remote.Repo != "" {
			where = s.Remote.Repo + " has neither its branch nor its state"
		}
		code, err = workorder.ExitNotFound, fmt.Errorf("task %s is not known: this state directory does not have it, and %s", id, where)
		hint = "check the id and --repo; `sandbox-agent create --task-id " + id + "` starts it"
	case RefusalNoText:
		code, hint = workorder.ExitNotFound, "give the task's text: --task"
		err = fmt.Errorf("begin task %s again: the remote knows nothing of it, and its text is gone: %w", id, s.OrderTextErr)
	case RefusalPlan:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s is a plan, which cannot be continued", id)
		hint = run("create --from-plan") + " carries it out; `sandbox-agent create --plan` makes a new one"
	case RefusalNotPlan:
		code, err = workorder.ExitUsage, fmt.Errorf("task %s was not begun as a plan", id)
		hint = "leave --plan out to go on with it, or choose another --task-id"
	case RefusalNoResult:
		err, hint = fmt.Errorf("task %s has no result: %w", id, s.PR.NoResult), run("logs")+" shows how far it came"
	case RefusalNothingToOpen:
		err, hint = fmt.Errorf("there is nothing to open for task %s: %s", id, s.PR.NothingToOpen), run("result")+" shows its result"
	case RefusalNoToken:
		code, err = workorder.ExitGit, fmt.Errorf("there is no token for the forge of %s", s.PR.Repo)
		hint = "set SANDBOX_AGENT_GIT_TOKEN (for GitHub also GH_TOKEN), log in with `gh auth login`, or name a GitHub App (docs/pull-requests.md)"
	default:
		code, hint, err = s.noBranch(why)
	}
	return &Refusal{Code: why, Err: &exiterr.Error{Code: code, Err: err, Hint: hint}}
}

func (s State) noBranch(why RefusalCode) (code int, hint string, err error) {
	id, on := s.Task, s.Remote
	switch why {
	case RefusalOtherBranch:
		return workorder.ExitUsage, "", fmt.Errorf("the branch of %s is %s, not %s", id, on.State.TargetBranch, s.named())
	case RefusalSeveralBranches:
		return workorder.ExitUsage, "name the one to go on with: --target-branch",
			fmt.Errorf("the remote has several branches of %s: %s", id, strings.Join(on.Branches, ", "))
	case RefusalStateUnreadable:
		return workorder.ExitGit, "name its branch: --target-branch",
			fmt.Errorf("the remote's state of %s cannot be read, and it has no branch of that task: %s", id, on.Warning)
	}
	return workorder.ExitGit, "name its branch and give its text: --target-branch, --task",
		fmt.Errorf("the remote has neither a state nor a branch of %s, only its saved checkpoints", id)
}

// named returns the user's name of the branch, or the record's.
func (s State) named() string {
	if s.Branch == "" && s.Record != nil {
		return s.Record.TargetBranch
	}
	return s.Branch
}
