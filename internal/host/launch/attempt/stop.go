package attempt

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// StopKind is how a run was ended from outside.
type StopKind int

// The ways a run ends, as far as its follower knows.
const (
	NotStopped StopKind = iota
	StoppedSoftly
	Killed
	Overdue
	FoundEnded // it had ended before this process looked
)

// StopBox stops the box of the attempt, if it has one.
func (h *Host) StopBox(ctx context.Context, rec *store.Record, grace time.Duration) error {
	box, err := h.Find(ctx, rec)
	if err != nil || box == nil {
		return err
	}
	return h.Engine.Stop(ctx, box.ID, grace)
}

// Stop ends a run within grace, or at once if grace is 0. The process that collects the run
// learns that a stop was requested; a process that is starting its box does not start it, or
// stops it. Stop reports false if there is no box to stop yet; the caller should retry.
func (h *Host) Stop(ctx context.Context, rec *store.Record, grace time.Duration) (bool, error) {
	kind := store.StopSoft
	if grace == 0 {
		kind = store.StopKill
	}
	box, err := h.Find(ctx, rec)
	if err != nil {
		return false, err
	}
	live := box != nil && box.Live()
	if !live && !h.Store.Held(rec.TaskID) {
		return true, nil // it ended without a request to stop
	}
	if h.Store.Stopped(rec.TaskID) != kind {
		if err := h.Store.NoteStop(rec.TaskID, kind); err != nil && !live {
			return false, err
		} else if err != nil {
			h.Log.Warn("note that the task is stopped", "task", rec.TaskID, "error", err)
		}
	}
	if !live {
		return false, nil
	}
	return true, h.Engine.Stop(ctx, box.ID, grace)
}

// Noted returns the stop that another process requested, and the grace that it left. A
// request with a shorter grace is carried out by its own process.
func (h *Host) Noted(taskID string) (grace time.Duration, asked bool) {
	switch h.Store.Stopped(taskID) {
	case store.StopKill:
		return 0, true
	case store.StopSoft:
		return runtime.StopTimeout, true
	}
	return 0, false
}

// Asked is the kind of an end that this process did not watch or cause.
func (h *Host) Asked(taskID string, kind StopKind) StopKind {
	if kind == StoppedSoftly || kind == Killed {
		return kind
	}
	switch h.Store.Stopped(taskID) {
	case store.StopKill:
		return Killed
	case store.StopSoft:
		return StoppedSoftly
	}
	return kind
}
