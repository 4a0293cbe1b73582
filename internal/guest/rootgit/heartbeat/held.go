package heartbeat

import (
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// HeldError means that another box works on the task.
type HeldError struct {
	TaskID    string
	Holder    string // host name of the box
	AttemptID string
	RenewedAt time.Time // its last push, by its own clock
}

func (e *HeldError) Error() string {
	if e.AttemptID == "" {
		return fmt.Sprintf("the lease of task %s was taken from this sandbox", e.TaskID)
	}
	return fmt.Sprintf("another sandbox (host %s, attempt %s) works on task %s", e.Holder, e.AttemptID, e.TaskID)
}

// EndedBy implements boot.EndedByer.
func (e *HeldError) EndedBy() workorder.EndedBy { return workorder.ByLease }

// Held returns the error for a lease l of another box; l is nil if its holder is unknown.
func (h *Heart) Held(l *workorder.Lease) *HeldError {
	e := &HeldError{TaskID: h.repos.Order.TaskID}
	if l != nil {
		e.Holder, e.AttemptID, e.RenewedAt = l.Holder, l.AttemptID, l.RenewedAt
	}
	return e
}
