// Package tasks decides what happens next to a task: Next is a function of what is known of the task and of what the
// user asks for, and has no input or output.
package tasks

import (
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Verb is what the user asks for.
type Verb string

// The verbs.
const (
	Create   Verb = "create"
	Continue Verb = "continue"
	Revise   Verb = "revise"
	Rebase   Verb = "rebase"
	OpenPR   Verb = "pr open"
	Read     Verb = "read" // what the last attempt left
)

// Asked is what the user asks for, with the flags that decide.
type Asked struct {
	Verb   Verb
	Task   string // its id
	Fresh  bool   // the id was made for this command: nobody can know it
	Text   string // the task, or an addition to it; may be empty
	Branch string // the task's branch, where the user names it
	// IfExists makes Create follow a task that runs, continue one that was cut short, and report one that is done.
	IfExists bool
	Plan     bool
	DryRun   bool
	Now      bool // do not wait for a provider's limit
	Wait     bool // wait for it, however long it takes
}

// OnlyNew tells whether the task must be one that nobody knows.
func (a Asked) OnlyNew() bool { return a.Verb == Create && (a.Fresh || !a.IfExists) }

// State is all that decides what happens next.
type State struct {
	Asked
	Time time.Time

	Record *store.Record // nil means this state folder does not know the task
	// First is the last attempt of the record when the command began: an attempt that another command adds
	// meanwhile answers this one, too.
	First string
	Held  bool // another command has the lock of the task
	Runs  bool // the box of the last attempt runs
	// Text and TextErr are the text of the last attempt's order.
	OrderText    string
	OrderTextErr error
	Waited       bool // this command has waited for a limit whose end is unknown

	Remote *Remote // nil means it was not asked yet
	Pull   *Pull   // nil means not looked at yet; only OpenPR needs it
}

// Remote is what the remote knows of a task.
type Remote struct {
	Repo     string // without credentials; empty means the project has no repository
	Known    bool
	Branches []string
	State    *workorder.State  // nil means there is none, or it cannot be read
	Warning  string            // why the state cannot be read
	Review   *workorder.Review // the feedback to address; nil means none was asked for, or the task is unknown
	Notes    []string          // about what is asked for, for the user
	Err      error             // why the remote could not be asked, or the project not be read
}

// Last is the last attempt that the remote knows; nil means it knows none.
func (r *Remote) Last() *workorder.Attempt {
	if r.State == nil {
		return nil
	}
	return r.State.Last()
}

// Base is the branch that the task began from; empty means the remote does not know.
func (r *Remote) Base() string {
	if r.State == nil {
		return ""
	}
	return r.State.BaseBranch
}

// Pull is what decides whether a task's pull request can be opened.
type Pull struct {
	NoResult error  // why there is no result
	Nothing  string // why the result has nothing to open; empty means it has
	Repo     string
	Token    bool // there is a token for the forge
}

// ending is how the last attempt ended.
type ending struct {
	status   workorder.Status
	by       workorder.EndedBy
	resumeAt *time.Time
	began    bool // a box accepted its order
	at       time.Time
	parked   int // attempts in a row that ended at a limit, this one included
}

func endingHere(r *store.Record) ending {
	return ending{
		status: r.Status, by: r.EndedBy, resumeAt: r.ResumeAt, began: r.Box != "" && r.EndedBy != workorder.ByOrder, at: r.FinishedAt,
		parked: parkedInARow(r.Attempts(), func(a store.Attempt) workorder.Status { return a.Status }),
	}
}

func endingElsewhere(s *workorder.State) ending {
	last := s.Last()
	return ending{
		status: last.Status, by: last.EndedBy, resumeAt: last.ResumeAt, began: last.EndedBy != workorder.ByOrder, at: last.EndedAt,
		parked: parkedInARow(s.Attempts, func(a workorder.Attempt) workorder.Status { return a.Status }),
	}
}

// parkedInARow is how many of the last attempts ended at a limit.
func parkedInARow[A any](all []A, status func(A) workorder.Status) (n int) {
	for _, a := range slices.Backward(all) {
		if status(a) != workorder.StatusParked {
			break
		}
		n++
	}
	return n
}
