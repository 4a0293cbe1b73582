package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Find finds the container of the record's attempt. It returns nil if the record's own engine has none.
func (h *Host) Find(ctx context.Context, rec *store.Record) (*runtime.Box, error) {
	box, err := runtime.Find(ctx, h.Ours(rec), rec.TaskID)
	if box != nil || err != nil || rec.Box == "" || rec.EngineID == "" {
		return box, err
	}
	info, err := h.Engine.Info(ctx)
	if err == nil && rec.Elsewhere(info.Identity()) {
		err = elsewhere(rec, info)
	}
	return nil, err
}

// ErrElsewhere is returned for a task whose box is on another engine than the launcher's:
// its state cannot be known here.
var ErrElsewhere = errors.New("its sandbox is on another engine")

func elsewhere(rec *store.Record, here runtime.Info) error {
	where, hint := rec.Engine+", and this is "+here.Host, "set DOCKER_HOST="+rec.Engine+", or take its context with `docker context use`"
	if rec.Engine == here.Host {
		where = fmt.Sprintf("%s was %s, and is %s now", here.Host, rec.EngineID, here.Identity())
		hint = "do it where that engine is (on another machine with the same state folder?)"
	}
	return fault.New(workorder.ExitBox, fmt.Errorf("task %s: %w: %s", rec.TaskID, ErrElsewhere, where),
		hint+"; if it is gone for good, `sandbox-agent rm --force "+rec.TaskID+"` forgets the task here, and `sandbox-agent continue "+rec.TaskID+
			" --project P` goes on from the remote then")
}

// Ours is the engine restricted to the boxes of the record's attempt.
func (h *Host) Ours(rec *store.Record) runtime.Follower {
	return runtime.OfAttempt{Follower: h.Engine, ID: rec.AttemptID}
}

// ErrRunning is returned by Collect for a box that has not ended.
var ErrRunning = errors.New("the run has not ended")

const (
	// createTime is how long after its beginning a run may still get a container: the image is there by then.
	createTime = 2 * time.Minute
	// lateTime is how long the engine may take to make a container after its client has gone; a busy engine took over a second.
	lateTime = 3 * time.Second
	latePoll = 100 * time.Millisecond
)

// Late looks again for a container that the engine may still be making for a command that was killed while it asked for it:
// no other process would remove it. It returns nil if none comes.
func (h *Host) Late(ctx context.Context, rec *store.Record) *runtime.Box {
	began := false
	if err := journal.Events(rec.Dir, func(e workorder.Event) { began = began || e.Type == workorder.EventReady }); err == nil && began || h.Time().Sub(rec.Begun()) > createTime {
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
