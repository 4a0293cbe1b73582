package workorder

import (
	"slices"
	"time"
)

// Mode says what the run is asked to do with the branch.
type Mode string

// The modes that this version carries out; an order with another one is refused.
const (
	// ModeCreate starts a new task on a new branch. It is refused when the remote
	// knows the task already.
	ModeCreate Mode = "create"
	// ModeContinue goes on with a task in a new box, from its branch and its last
	// checkpoint. It is refused when the remote does not know the task.
	ModeContinue Mode = "continue"
	// ModeRevise goes on with a task as ModeContinue does, and gives the agent the
	// feedback of Order.Review, each item of which is answered.
	ModeRevise Mode = "revise"
	// ModeRebase puts the task's commits on the latest base. The agent is asked only
	// where they conflict.
	ModeRebase Mode = "rebase"
	// ModePlan starts a new task whose result is a plan. Its branch is never written.
	ModePlan Mode = "plan"
	// ModeStand has no task: the box serves whoever dials it, until nobody needs it; see Stand.
	ModeStand Mode = "stand"
)

// Modes lists every mode.
func Modes() []Mode {
	return []Mode{ModeCreate, ModeContinue, ModeRevise, ModeRebase, ModePlan, ModeStand}
}

// GoesOn tells whether a mode is about a task that the remote knows already.
func (m Mode) GoesOn() bool { return m == ModeContinue || m == ModeRevise || m == ModeRebase }

// Resumable is workorder.Resumable for an attempt in this mode. Of a plan nothing is kept to go on from.
func (m Mode) Resumable(s Status, by EndedBy) bool {
	return m != ModePlan && m != ModeStand && Resumable(s, by)
}

// IfExists says what a box does when it finds that the remote knows the task of its order. The box decides, after it
// has read the state: whoever gives an order twice, and a scheduler does, knows less than it. A task that another box works on
// is refused by the lease, whatever this says.
type IfExists string

// The ways a box may treat a task that exists.
const (
	// ExistsRefuse refuses an order whose mode does not go on.
	ExistsRefuse IfExists = "refuse"
	// ExistsContinue goes on with the task as ModeContinue does, however it ended.
	ExistsContinue IfExists = "continue"
	// ExistsTell ends with the recorded result where the task is done, or parked until later; else it is ExistsContinue.
	ExistsTell IfExists = "tell"
)

// ListIfExists lists what Order.IfExists may be, beside empty.
func ListIfExists() []IfExists { return []IfExists{ExistsRefuse, ExistsContinue, ExistsTell} }

// MayGoOn tells whether the order is for a task that the remote knows, too.
func (o *Order) MayGoOn() bool {
	return o.Mode.GoesOn() || o.Mode == ModeCreate && (o.IfExists == ExistsContinue || o.IfExists == ExistsTell)
}

// Tells reports whether an attempt that ended so is told, and not gone on with, by ExistsTell. An order that was refused
// did nothing: the next one may be better.
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
	c.that(o.IfExists == "" || slices.Contains(ListIfExists(), o.IfExists), "if_exists %q is not known (known: %q)", o.IfExists, ListIfExists())
	c.that(o.IfExists == "" || o.Mode != ModeRevise && o.Mode != ModeRebase, "if_exists and mode %s do not go together: what is asked for has nothing to do with how the task ended", o.Mode)
}
