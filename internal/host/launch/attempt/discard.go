package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Discard removes the boxes of a task, those kept of former attempts too. Live
// ones are only removed by force, and only by force those are left that are on other
// engines and may live: left says which. Such a task cannot be collected any more.
func (h *Host) Discard(ctx context.Context, rec *store.Record, force bool) (left []string, err error) {
	boxes, err := h.Engine.Boxes(ctx, map[string]string{workorder.LabelTask: rec.TaskID})
	if err != nil {
		return nil, err
	}
	if left, err = h.outOfReach(ctx, rec, boxes, force); err != nil {
		return nil, err
	}
	boxes = slices.DeleteFunc(boxes, func(b runtime.Box) bool {
		id := b.Labels[workorder.LabelAttempt]
		return id != "" && !rec.Knows(id) // another state folder's
	})
	if slices.ContainsFunc(boxes, runtime.Box.Live) {
		if !force {
			return nil, fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
		}
		if err := h.Store.NoteStop(rec.TaskID, store.StopKill); err != nil {
			return nil, err
		}
	}
	if !force && !rec.Collected && len(boxes) == 0 && h.Store.Held(rec.TaskID) {
		return nil, fmt.Errorf("task %s is being started: %w", rec.TaskID, ErrRunning)
	}
	var errs []error
	for _, b := range boxes {
		errs = append(errs, h.Engine.Remove(ctx, b.ID))
	}
	return left, errors.Join(errs...)
}

// outOfReach names the task's boxes on other engines. One that may live is only
// left by force.
func (h *Host) outOfReach(ctx context.Context, rec *store.Record, here []runtime.Box, force bool) (left []string, err error) {
	info, err := h.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range rec.Attempts() {
		open := a.ID == rec.AttemptID && !rec.Collected || a.Unsure
		if !open && !a.Keep || !a.Elsewhere(info.Identity()) ||
			slices.ContainsFunc(here, func(b runtime.Box) bool { return b.Labels[workorder.LabelAttempt] == a.ID }) {
			continue
		}
		if open && !force {
			return nil, elsewhere(rec, info)
		}
		left = append(left, a.Box+" on "+a.Engine)
	}
	return left, nil
}
