package remote

import (
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LeaseHeldError means that another box works on the task.
type LeaseHeldError struct {
	TaskID    string
	Holder    string // host name of the box
	AttemptID string
	RenewedAt time.Time // its last push, by its own clock
}

func (e *LeaseHeldError) Error() string {
	if e.AttemptID == "" {
		return fmt.Sprintf("the lease of task %s was taken from this sandbox", e.TaskID)
	}
	return fmt.Sprintf("another sandbox (host %s, attempt %s) works on task %s", e.Holder, e.AttemptID, e.TaskID)
}

// EndedBy implements boot.EndedByer.
func (e *LeaseHeldError) EndedBy() workorder.EndedBy { return workorder.ByLease }

// Held returns the error for a lease l of another box; l is nil if its holder is unknown.
func (h *Heartbeat) Held(l *workorder.Lease) *LeaseHeldError {
	e := &LeaseHeldError{TaskID: h.Repos.Order.TaskID}
	if l != nil {
		e.Holder, e.AttemptID, e.RenewedAt = l.Holder, l.AttemptID, l.RenewedAt
	}
	return e
}
