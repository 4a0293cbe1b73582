package attempt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Find finds the container of the record's attempt; nil when its own engine says
// that there is none.
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

// ErrElsewhere is returned for a task whose box lies on another engine than the
// launcher's: nothing can be said of it here.
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

// Ours is the engine as far as it is about the record's attempt.
func (h *Host) Ours(rec *store.Record) runtime.Runtime { return attemptOnly{h.Engine, rec.AttemptID} }

// attemptOnly sees the box of one attempt: that of a former one may have been kept.
type attemptOnly struct {
	runtime.Runtime
	id string // empty means a record of an older version, whose box has no such label
}

func (a attemptOnly) Boxes(ctx context.Context, labels map[string]string) ([]runtime.Box, error) {
	if labels = maps.Clone(labels); a.id != "" {
		labels[workorder.LabelAttempt] = a.id
	}
	return a.Runtime.Boxes(ctx, labels)
}

// ErrRunning is returned by Collect for a box that has not ended.
var ErrRunning = errors.New("the run has not ended")

const (
	// createTime is how long after its beginning a run may still be about to get a container: the image is there by then.
	createTime = 2 * time.Minute
	// lateTime is how long the engine may take to make a container for a client that is gone; a busy one took over a second.
	lateTime = 3 * time.Second
	latePoll = 100 * time.Millisecond
)

// Late looks again for a container that the engine may be making at this moment, for a command that was killed while it asked
// for it: left alone it would stay. Nil when none comes.
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
