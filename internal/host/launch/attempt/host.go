// Package attempt finds, stops and discards the box of a recorded attempt.
package attempt

import (
	"log/slog"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Host is the machine's engine and state, as a run uses them.
type Host struct {
	Engine runtime.Runtime
	Store  *store.Store
	Log    *slog.Logger
	// Show is called for every event, also the host's own (Seq 0), from one goroutine at a
	// time. If nil, events are dropped.
	Show func(workorder.Event)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Time is now.
func (h *Host) Time() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// Emit shows an event.
func (h *Host) Emit(e workorder.Event) {
	if h.Show != nil {
		h.Show(e)
	}
}
