package attempt

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// StopKind is how a run was ended from outside.
type StopKind int

// The ways a run ends, as far as whoever follows it knows.
const (
	NotStopped StopKind = iota
	StoppedSoftly
	Killed
	Overdue
	FoundEnded // nobody watched it end
)

// StopBox stops the box of the attempt, if it has one.
func (h *Host) StopBox(ctx context.Context, rec *store.Record, grace time.Duration) error {
	box, err := h.Find(ctx, rec)
	if err != nil || box == nil {
		return err
	}
	return h.Engine.Stop(ctx, box.ID, grace)
}

// Stop ends a run gracefully within grace, or at once with a grace of 0. Whoever
// collects it finds out that its end was asked for, and whoever is just starting its box does
// not start it, or stops it. False: there is no box to stop yet, ask again.
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
		return true, nil // it has ended, and nobody asked for that
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

// Noted is the stop that was asked for beside this process, with the grace that it
// leaves: the one who asked ends a shorter one.
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
