package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Git reads the refs of tasks in a repository.
type Git interface {
	// TaskRefs returns the objects of a task's refs by their full names.
	TaskRefs(ctx context.Context, id string) (map[string]string, error)
	State(ctx context.Context, id string) (*workorder.State, error)
}

// Ask reads the remote without a lock, before a box starts. The box checks again, and its check decides.
func Ask(ctx context.Context, git Git, id string) (*Remote, error) {
	refs, err := git.TaskRefs(ctx, id)
	if err != nil {
		return nil, err
	}
	// If someone deleted the state by hand, the branch still counts.
	on := &Remote{Known: len(refs) > 0}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if branch, ok := strings.CutPrefix(ref, workorder.BranchRef("")); ok {
			on.Branches = append(on.Branches, branch)
		}
	}
	if refs[workorder.StateRef(id)] == "" {
		return on, nil
	}
	if on.State, err = git.State(ctx, id); err != nil {
		on.Warning = err.Error()
	}
	return on, nil
}

// warnings returns warnings about the box's work. rec is nil for a task without a record.
func (r *Remote) warnings(rec *taskstore.Record, now time.Time) (list []string) {
	if r.Warning != "" {
		list = append(list, r.Warning)
	}
	list = append(list, r.Notes...)
	if r.State == nil || r.State.Lease == nil || rec != nil && rec.Knows(r.State.Lease.AttemptID) {
		return list
	}
	return append(list, fmt.Sprintf("the task is leased by another sandbox (host %s, last sign of life %s): this one waits until the lease "+
		"ends, and stops if it is renewed",
		text.Clean(r.State.Lease.Holder), text.Clock(r.State.Lease.RenewedAt, now)))
}

// uncounted returns the costs of attempts whose cost the remote does not know.
func (r *Remote) uncounted(usd map[string]float64) map[string]float64 {
	if r.State != nil {
		maps.DeleteFunc(usd, func(id string, _ float64) bool {
			a := r.State.Find(id)
			return a != nil && a.Usage.CostUSD != nil
		})
	}
	return usd
}

// result returns the remote's result of the last attempt, which ran on another machine.
func (r *Remote) result() *workorder.Result {
	s, last := r.State, r.Last()
	res := &workorder.Result{
		TaskID: s.TaskID, Project: s.Project, Mode: last.Mode, Attempt: last.Number, AttemptID: last.ID,
		Resumable: workorder.Resumable(last.Status, last.EndedBy), ResumeAt: last.ResumeAt, StartedAt: last.StartedAt,
		BaseBranch: s.BaseBranch, Branch: s.TargetBranch, BaseSHA: s.BaseSHA, HeadSHA: last.HeadSHA, Pushed: last.HeadSHA != "",
		Agent: last.Agent, Usage: last.Usage, Warnings: []string{"the task ended on another machine; its output lies there"},
	}
	res.End(last.Ending())
	if !last.EndedAt.IsZero() {
		res.DurationMS = max(0, last.EndedAt.Sub(last.StartedAt).Milliseconds())
	}
	return res
}

// Verb is the kind of a request.
type Verb string

// Kinds of requests.
const (
	Create   Verb = "create"
	Continue Verb = "continue"
	Revise   Verb = "revise"
	Rebase   Verb = "rebase"
	OpenPR   Verb = "pr open"
	Read     Verb = "read" // the output of the last attempt
)

// Request is the user's request, with the flags that decide.
type Request struct {
	Verb   Verb
	Task   string // id
	Fresh  bool   // the id was created by this command, so that nothing else knows it
	Text   string // the task, or an addition to it; may be ""
	Branch string // the task's branch, if the user names it
	// IfExists makes Create follow a running task, continue an interrupted one, and report a finished one.
	IfExists bool
	Plan     bool
	DryRun   bool
	Now      bool // do not wait for a provider's limit
	Wait     bool // wait for it, however long it takes
}

// OnlyNew reports whether the task must be a new one.
func (a Request) OnlyNew() bool { return a.Verb == Create && (a.Fresh || !a.IfExists) }

// State is everything that decides the next step.
type State struct {
	Request
	Time time.Time

	Record *taskstore.Record // nil if the state directory has none
	// LastAtStart is the last attempt when the command began. An attempt that another command adds also answers this request.
	LastAtStart string
	Locked      bool // another command has the lock of the task
	BoxRunning  bool // the box of the last attempt runs
	// OrderText and OrderTextErr are the text of the last attempt's order.
	OrderText    string
	OrderTextErr error
	WaitedOnce   bool // this command has waited for a limit whose end is unknown

	Remote *Remote  // nil if it was not asked yet
	PR     *PRState // nil if not looked up yet; only OpenPR needs it
}

// Remote is the remote's knowledge of a task.
type Remote struct {
	Repo     string // without credentials; "" if the project has no repository
	Known    bool
	Branches []string
	State    *workorder.State  // nil if there is none or it cannot be read
	Warning  string            // why the state cannot be read
	Review   *workorder.Review // the feedback to address, or nil
	Notes    []string          // for the user, about the request
	Err      error             // the remote could not be asked, or the project could not be read
}

// Last returns the last attempt that the remote knows, or nil.
func (r *Remote) Last() *workorder.Attempt {
	if r.State == nil {
		return nil
	}
	return r.State.Last()
}

// Base is the branch that the task began from; "" if the remote does not know it.
func (r *Remote) Base() string {
	if r.State == nil {
		return ""
	}
	return r.State.BaseBranch
}

// PRState decides whether a task's pull request can be opened.
type PRState struct {
	NoResult      error  // why there is no result
	NothingToOpen string // why there is nothing to open, or ""
	Repo          string
	Token         bool // there is a token for the forge
}

// ending describes the end of the last attempt.
type ending struct {
	status   workorder.Status
	by       workorder.EndedBy
	resumeAt *time.Time
	began    bool // a box accepted its order
	at       time.Time
	parked   int // attempts in a row that ended at a limit, including this one
}

func endingHere(r *taskstore.Record) ending {
	return ending{
		status: r.Status, by: r.EndedBy, resumeAt: r.ResumeAt, began: r.Box != "" && r.EndedBy != workorder.EndedByOrder, at: r.FinishedAt,
		parked: parkedInARow(r.Attempts(), func(a taskstore.Attempt) workorder.Status { return a.Status }),
	}
}

func endingElsewhere(s *workorder.State) ending {
	last := s.Last()
	return ending{
		status: last.Status, by: last.EndedBy, resumeAt: last.ResumeAt, began: last.EndedBy != workorder.EndedByOrder, at: last.EndedAt,
		parked: parkedInARow(s.Attempts, func(a workorder.Attempt) workorder.Status { return a.Status }),
	}
}

// parkedInARow counts the last attempts that all ended at a limit.
func parkedInARow[A any](all []A, status func(A) workorder.Status) (n int) {
	for _, a := range slices.Backward(all) {
		if status(a) != workorder.StatusParked {
			break
		}
		n++
	}
	return n
}
