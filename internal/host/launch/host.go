package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Host is the host's engine and state: it finds, stops and discards the boxes of recorded attempts.
type Host struct {
	Engine runtime.Runtime
	Store  *taskstore.Store
	Log    *slog.Logger
	// Show is called for every event, also the host's own (Seq 0), from one goroutine at a time. If nil, events are dropped.
	Show func(workorder.Event)
	Now  func() time.Time // nil means time.Now
}

func (h *Host) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// emit shows an event. Events of the host get the current time.
func (h *Host) emit(e workorder.Event) {
	if e.Seq == 0 && e.Time.IsZero() {
		e.Time = h.now()
	}
	if h.Show != nil {
		h.Show(e)
	}
}

// Find finds the container of the record's attempt. It returns nil if the record's own engine has none.
func (h *Host) Find(ctx context.Context, rec *taskstore.Record) (*runtime.Instance, error) {
	box, err := runtime.Find(ctx, h.attemptBoxes(rec), rec.TaskID)
	if box != nil || err != nil || rec.Box == "" || rec.EngineID == "" {
		return box, err
	}
	info, err := h.Engine.Info(ctx)
	if err == nil && rec.Elsewhere(info.Identity()) {
		err = elsewhere(rec, info)
	}
	return nil, err
}

// ErrOtherEngine means that a task's box is on another engine, where its state is unknown.
var ErrOtherEngine = errors.New("its sandbox is on another engine")

func elsewhere(rec *taskstore.Record, here runtime.Info) error {
	where, hint := rec.Engine+", and this is "+here.Host, "set DOCKER_HOST="+rec.Engine+", or select its context with `docker context use`"
	if rec.Engine == here.Host {
		where = fmt.Sprintf("the engine at %s was %s and is now %s", here.Host, rec.EngineID, here.Identity())
		hint = "run the command on the machine of that engine"
	}
	return exiterr.New(workorder.ExitBox, fmt.Errorf("task %s: %w: %s", rec.TaskID, ErrOtherEngine, where),
		hint+"; if that engine no longer exists, forget the task with `sandbox-agent rm --force "+rec.TaskID+"`, then resume it from the "+
			"remote with `sandbox-agent continue "+rec.TaskID+" --project P`")
}

func (h *Host) attemptBoxes(rec *taskstore.Record) runtime.Follower {
	return runtime.AttemptFilter{Follower: h.Engine, ID: rec.AttemptID}
}

// ErrRunning is returned by Collect for a box that has not ended.
var ErrRunning = errors.New("the run has not ended")

const (
	// createTime is how long after its start a run may still get a container: the image exists by then.
	createTime = 2 * time.Minute
	// lateTime is how long the engine may take to create a container after its client ended; a busy engine took over a second.
	lateTime = 3 * time.Second
	latePoll = 100 * time.Millisecond
)

// findLate looks again for a container that the engine may still be creating for a killed command: no other process would
// remove it. It returns nil if none appears.
func (h *Host) findLate(ctx context.Context, rec *taskstore.Record) *runtime.Instance {
	began := false
	if err := outcome.Events(rec.Dir, func(e workorder.Event) { began = began || e.Type == workorder.EventReady }); err == nil && began ||
		h.now().Sub(rec.Begun()) > createTime {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(latePoll):
		}
		if box, err := h.Find(ctx, rec); err == nil && box != nil {
			return box
		}
	}
}

// StopKind is how a run was ended from outside.
type StopKind int

// Outcomes of a stop.
const (
	NotStopped StopKind = iota
	StoppedSoftly
	Killed
	Overdue
	FoundEnded // before this process looked
)

// Stop ends a run within grace, or at once if grace is 0. It records the request: the process that collects the run reads
// it, and a process that is starting the box does not start it or stops it. Stop reports false if there is no box to stop
// yet; the caller should retry.
func (h *Host) Stop(ctx context.Context, rec *taskstore.Record, grace time.Duration) (bool, error) {
	kind := taskstore.StopSoft
	if grace == 0 {
		kind = taskstore.StopKill
	}
	box, err := h.Find(ctx, rec)
	if err != nil {
		return false, err
	}
	live := box != nil && box.Running()
	if !live && !h.Store.Locked(rec.TaskID) {
		return true, nil // it ended without a request to stop
	}
	if h.Store.StopRequest(rec.TaskID) != kind {
		if err := h.Store.RequestStop(rec.TaskID, kind); err != nil && !live {
			return false, err
		} else if err != nil {
			h.Log.Warn("record the stop request", "task", rec.TaskID, "error", err)
		}
	}
	if !live {
		return false, nil
	}
	return true, h.Engine.Stop(ctx, box.ID, grace)
}

// stopRequest returns the stop that another process requested, and its grace. A request with a shorter grace is carried out
// by its own process.
func (h *Host) stopRequest(taskID string) (grace time.Duration, asked bool) {
	switch h.Store.StopRequest(taskID) {
	case taskstore.StopKill:
		return 0, true
	case taskstore.StopSoft:
		return runtime.StopTimeout, true
	}
	return 0, false
}

// stopKind adds the stop that another process requested.
func (h *Host) stopKind(taskID string, kind StopKind) StopKind {
	if kind == StoppedSoftly || kind == Killed {
		return kind
	}
	switch h.Store.StopRequest(taskID) {
	case taskstore.StopKill:
		return Killed
	case taskstore.StopSoft:
		return StoppedSoftly
	}
	return kind
}

// Discard removes all boxes of a task, also kept ones of previous attempts. It removes running ones only with force. With
// force it also gives up boxes on other engines that may run: left names them. The task cannot be collected afterwards.
func (h *Host) Discard(ctx context.Context, rec *taskstore.Record, force bool) (left []string, err error) {
	boxes, err := h.Engine.Instances(ctx, map[string]string{workorder.LabelTask: rec.TaskID})
	if err != nil {
		return nil, err
	}
	if left, err = h.outOfReach(ctx, rec, boxes, force); err != nil {
		return nil, err
	}
	boxes = slices.DeleteFunc(boxes, func(b runtime.Instance) bool {
		id := b.Labels[workorder.LabelAttempt]
		return id != "" && !rec.Knows(id) // it belongs to another state directory
	})
	if slices.ContainsFunc(boxes, runtime.Instance.Running) {
		if !force {
			return nil, fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
		}
		if err := h.Store.RequestStop(rec.TaskID, taskstore.StopKill); err != nil {
			return nil, err
		}
	}
	if !force && !rec.Collected && len(boxes) == 0 && h.Store.Locked(rec.TaskID) {
		return nil, fmt.Errorf("task %s is being started: %w", rec.TaskID, ErrRunning)
	}
	var errs []error
	for _, b := range boxes {
		errs = append(errs, h.Engine.Remove(ctx, b.ID))
	}
	return left, errors.Join(errs...)
}

// outOfReach names the task's boxes on other engines. Without force, one that may run is an error.
func (h *Host) outOfReach(ctx context.Context, rec *taskstore.Record, here []runtime.Instance, force bool) (left []string, err error) {
	info, err := h.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range rec.Attempts() {
		open := a.ID == rec.AttemptID && !rec.Collected || a.MayStillRun
		if !open && !a.Keep || !a.Elsewhere(info.Identity()) ||
			slices.ContainsFunc(here, func(b runtime.Instance) bool { return b.Labels[workorder.LabelAttempt] == a.ID }) {
			continue
		}
		if open && !force {
			return nil, elsewhere(rec, info)
		}
		left = append(left, a.Box+" on "+a.Engine)
	}
	return left, nil
}
