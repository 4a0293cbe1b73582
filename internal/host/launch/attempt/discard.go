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

// Discard removes all boxes of a task, also those kept of former attempts. It removes
// live ones only with force. With force it also gives up boxes on other engines that may
// live: left names them. The task cannot be collected any more.
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
		return id != "" && !rec.Knows(id) // it belongs to another state folder
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

// outOfReach names the task's boxes on other engines. Without force, one that may live is
// an error.
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
