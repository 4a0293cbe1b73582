package tasks

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

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

// noBranch explains why the task's branch is not known.
func (s State) noBranch(why Why) (code int, hint string, err error) {
	id, on := s.Task, s.Remote
	switch why {
	case OtherBranch:
		return workorder.ExitUsage, "", fmt.Errorf("the branch of %s is %s, not %s", id, on.State.TargetBranch, s.named())
	case SeveralBranches:
		return workorder.ExitUsage, "name the one to go on with: --target-branch", fmt.Errorf("the remote has several branches of %s: %s", id, strings.Join(on.Branches, ", "))
	case StateUnreadable:
		return workorder.ExitGit, "name its branch: --target-branch", fmt.Errorf("the remote's state of %s cannot be read, and it has no branch of that task: %s", id, on.Warning)
	}
	return workorder.ExitGit, "name its branch and give its text: --target-branch, --task", fmt.Errorf("the remote has neither a state nor a branch of %s, only what was saved beside them", id)
}

// named is the branch that the user gave, else that of the record.
func (s State) named() string {
	if s.Branch == "" && s.Record != nil {
		return s.Record.TargetBranch
	}
	return s.Branch
}
