package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// engineGone is how long an engine that stopped answering is waited for: a
	// restart of the engine takes seconds, a person should not wait longer than this.
	engineGone = 30 * time.Second
	// reconnectPause keeps a stream that breaks at once from being asked for in a loop.
	reconnectPause = 300 * time.Millisecond
)

// follow records the box's events until it has ended, over broken streams and
// restarts of the engine. A box that is gone has ended too.
func (l *Launcher) follow(ctx context.Context, run *store.Record, rec *recorder) error {
	taskID := run.TaskID
	var downSince time.Time
	for {
		box, err := l.box(ctx, run)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, engine.ErrUnavailable):
			if downSince.IsZero() {
				downSince = l.now()
				l.Log.Warn("the engine stopped answering", "task", taskID, "error", err)
			}
			if l.now().Sub(downSince) > l.engineGone() {
				return fault.New(workorder.ExitBox, fmt.Errorf("follow task %s: the engine has not answered for %s: %w", taskID, l.engineGone(), err),
					"the run is not forgotten: when the engine is back, `sandbox-agent result "+taskID+"` collects it")
			}
		case err != nil:
			return err
		case box == nil:
			return nil
		case !box.Live():
			rec.restart()
			err := l.Engine.Logs(ctx, box.ID, engine.LogOptions{Since: rec.at, Stdout: rec})
			return errors.Join(err, rec.err)
		default:
			downSince = time.Time{}
			rec.restart()
			err := engine.Follow(ctx, l.ours(run), taskID, engine.LogOptions{Since: rec.at, Stdout: rec})
			if rec.err != nil {
				return fmt.Errorf("write the record of the run: %w", rec.err)
			}
			if err == nil {
				// The stream ends a moment before the state says so.
				if box, err := l.box(ctx, run); err == nil && box != nil && !box.Live() {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}

// box finds the container of the record's attempt; nil when its own engine says
// that there is none.
func (l *Launcher) box(ctx context.Context, rec *store.Record) (*engine.Box, error) {
	box, err := engine.Find(ctx, l.ours(rec), rec.TaskID)
	if box != nil || err != nil || rec.Box == "" || rec.EngineID == "" {
		return box, err
	}
	info, err := l.Engine.Info(ctx)
	if err == nil && rec.Elsewhere(info.Identity()) {
		err = elsewhere(rec, info)
	}
	return nil, err
}

// ErrElsewhere is returned for a task whose box lies on another engine than the
// launcher's: nothing can be said of it here.
var ErrElsewhere = errors.New("its box is on another engine")

func elsewhere(rec *store.Record, here engine.Info) error {
	where, hint := rec.Engine+", and this is "+here.Host, "set DOCKER_HOST="+rec.Engine+", or take its context with `docker context use`"
	if rec.Engine == here.Host {
		where = fmt.Sprintf("%s was %s, and is %s now", here.Host, rec.EngineID, here.Identity())
		hint = "do it where that engine is (on another machine with the same state folder?)"
	}
	return fault.New(workorder.ExitBox, fmt.Errorf("task %s: %w: %s", rec.TaskID, ErrElsewhere, where),
		hint+"; if it is gone for good, `sandbox-agent rm --force "+rec.TaskID+"` forgets the task here, and `sandbox-agent continue "+rec.TaskID+
			" --project P` goes on from the remote then")
}

// ours is the engine as far as it is about the record's attempt.
func (l *Launcher) ours(rec *store.Record) engine.Engine { return attemptOnly{l.Engine, rec.AttemptID} }

// attemptOnly sees the box of one attempt: that of a former one may have been kept.
type attemptOnly struct {
	engine.Engine
	id string // empty: a record of an older version, whose box has no such label
}

func (a attemptOnly) Boxes(ctx context.Context, labels map[string]string) ([]engine.Box, error) {
	if labels = maps.Clone(labels); a.id != "" {
		labels[workorder.LabelAttempt] = a.id
	}
	return a.Engine.Boxes(ctx, labels)
}
