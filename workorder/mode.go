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
	// ModeRevise resumes a task as ModeContinue does, and gives the agent the feedback in Order.Review, each item of which is answered.
	ModeRevise Mode = "revise"
	// ModeRebase rebases the task's commits onto the latest base. The agent only resolves conflicts.
	ModeRebase Mode = "rebase"
	// ModePlan starts a new task whose result is a plan. It never pushes the branch.
	ModePlan Mode = "plan"
	// ModeStandalone is a standalone sandbox: the box serves clients until it is released; see Standalone.
	ModeStandalone Mode = "stand"
)

// Modes returns all modes.
func Modes() []Mode {
	return []Mode{ModeCreate, ModeContinue, ModeRevise, ModeRebase, ModePlan, ModeStandalone}
}

// Continues reports whether the mode needs a task that exists on the remote.
func (m Mode) Continues() bool { return m == ModeContinue || m == ModeRevise || m == ModeRebase }

// Resumable is workorder.Resumable for an attempt in this mode. A plan cannot be resumed.
func (m Mode) Resumable(s Status, by EndedBy) bool {
	return m != ModePlan && m != ModeStandalone && Resumable(s, by)
}

// IfExists says what a box does if its order's task exists on the remote. The box decides after it has read the state, since a scheduler
// that sends an order twice cannot know the state. A task with a valid lease of another box is always refused.
type IfExists string

// Values of IfExists.
const (
	// IfExistsRefuse refuses an order whose mode does not resume a task.
	IfExistsRefuse IfExists = "refuse"
	// IfExistsContinue resumes the task as ModeContinue does, however it ended.
	IfExistsContinue IfExists = "continue"
	// IfExistsReport ends with the recorded result if the task is done, or parked until later; otherwise it is IfExistsContinue.
	IfExistsReport IfExists = "tell"
)

// ListIfExists returns the values of Order.IfExists other than "".
func ListIfExists() []IfExists { return []IfExists{IfExistsRefuse, IfExistsContinue, IfExistsReport} }

// MayContinue reports whether the order may resume a task that exists on the remote.
func (o *Order) MayContinue() bool {
	return o.Mode.Continues() || o.Mode == ModeCreate && (o.IfExists == IfExistsContinue || o.IfExists == IfExistsReport)
}

// ReportsResult reports whether IfExistsReport returns the result of this attempt instead of resuming it. A refused order did
// nothing, so the next one is tried.
func ReportsResult(a *Attempt, now time.Time) bool {
	switch {
	case a == nil || a.Status == "" || a.EndedBy == EndedByOrder:
		return false
	case a.Status == StatusParked:
		return a.ResumeAt != nil && a.ResumeAt.After(now)
	}
	return !a.Mode.Resumable(a.Status, a.EndedBy)
}

func (o *Order) checkIfExists(p *problems) {
	p.require(o.IfExists == "" || slices.Contains(ListIfExists(), o.IfExists), "if_exists %q is unknown (known: %q)", o.IfExists,
		ListIfExists())
	p.require(o.IfExists == "" || o.Mode != ModeRevise && o.Mode != ModeRebase, "mode %s does not support if_exists", o.Mode)
}
