package workorder

import (
	"slices"
	"time"
)

// Mode is the kind of an attempt.
type Mode string

// Modes. An order with another mode is refused.
const (
	// ModeCreate starts a new task on a new branch. It is refused if the task exists on the remote.
	ModeCreate Mode = "create"
	// ModeContinue resumes a task in a new box, from its branch and last checkpoint. It is refused if the task does not
	// exist on the remote.
	ModeContinue Mode = "continue"
	// ModeRevise resumes a task as ModeContinue does, and gives the agent the feedback in Order.Review, each item of
	// which is answered.
	ModeRevise Mode = "revise"
	// ModeRebase rebases the task's commits onto the latest base. The agent only resolves conflicts.
	ModeRebase Mode = "rebase"
	// ModePlan starts a new task whose result is a plan. It never pushes the branch.
	ModePlan Mode = "plan"
	// ModeStand is a standalone sandbox without a task: the box serves clients until it is released; see Stand.
	ModeStand Mode = "stand"
)

// Modes returns all modes.
func Modes() []Mode {
	return []Mode{ModeCreate, ModeContinue, ModeRevise, ModeRebase, ModePlan, ModeStand}
}

// GoesOn reports whether the mode needs a task that exists on the remote.
func (m Mode) GoesOn() bool { return m == ModeContinue || m == ModeRevise || m == ModeRebase }

// Resumable is workorder.Resumable for an attempt in this mode. A plan cannot be resumed.
func (m Mode) Resumable(s Status, by EndedBy) bool {
	return m != ModePlan && m != ModeStand && Resumable(s, by)
}

// IfExists says what a box does if its order's task exists on the remote. The box decides after it has read the state,
// since a scheduler that sends an order twice cannot know the state. A task with a valid lease of another box is always
// refused.
type IfExists string

// Values of IfExists.
const (
	// ExistsRefuse refuses an order whose mode does not resume a task.
	ExistsRefuse IfExists = "refuse"
	// ExistsContinue resumes the task as ModeContinue does, however it ended.
	ExistsContinue IfExists = "continue"
	// ExistsTell ends with the recorded result if the task is done, or parked until later; otherwise it is
	// ExistsContinue.
	ExistsTell IfExists = "tell"
)

// ListIfExists returns the values of Order.IfExists other than "".
func ListIfExists() []IfExists { return []IfExists{ExistsRefuse, ExistsContinue, ExistsTell} }

// MayGoOn reports whether the order may resume a task that exists on the remote.
func (o *Order) MayGoOn() bool {
	return o.Mode.GoesOn() || o.Mode == ModeCreate && (o.IfExists == ExistsContinue || o.IfExists == ExistsTell)
}

// Tells reports whether ExistsTell returns the result of this attempt instead of resuming it. A refused order did
// nothing, so the next one is tried.
func Tells(a *Attempt, now time.Time) bool {
	switch {
	case a == nil || a.Status == "" || a.EndedBy == ByOrder:
		return false
	case a.Status == StatusParked:
		return a.ResumeAt != nil && a.ResumeAt.After(now)
	}
	return !a.Mode.Resumable(a.Status, a.EndedBy)
}

func (o *Order) checkIfExists(c *check) {
	c.that(o.IfExists == "" || slices.Contains(ListIfExists(), o.IfExists), "if_exists %q is unknown (known: %q)", o.IfExists, ListIfExists())
	c.that(o.IfExists == "" || o.Mode != ModeRevise && o.Mode != ModeRebase, "mode %s does not support if_exists", o.Mode)
}
