// Package follow records a box's events until it has ended, and stops it when it is told to.
package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Follower follows a run.
type Follower struct {
	Host *attempt.Host
	// EngineGone overrides how long an engine that is away is waited for.
	EngineGone time.Duration
}

const (
	// engineGone is how long an engine that stopped answering is waited for: a
	// restart of the engine takes seconds, a person should not wait longer than this.
	engineGone = 30 * time.Second
	// ReconnectPause keeps a stream that breaks at once from being asked for in a loop.
	ReconnectPause = 300 * time.Millisecond
)

// Run records the box's events until it has ended, over broken streams and
// restarts of the engine. A box that is gone has ended too.
func (f *Follower) Run(ctx context.Context, run *store.Record, rec *journal.Recorder) error {
	taskID := run.TaskID
	var downSince time.Time
	for {
		box, err := f.Host.Find(ctx, run)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, runtime.ErrUnavailable):
			if downSince.IsZero() {
				downSince = f.Host.Time()
				f.Host.Log.Warn("the engine stopped answering", "task", taskID, "error", err)
			}
			if f.Host.Time().Sub(downSince) > f.engineGone() {
				return fault.New(workorder.ExitBox, fmt.Errorf("follow task %s: the engine has not answered for %s: %w", taskID, f.engineGone(), err),
					"the run is not forgotten: when the engine is back, `sandbox-agent result "+taskID+"` collects it")
			}
		case err != nil:
			return err
		case box == nil:
			return nil
		case !box.Live():
			rec.Restart()
			err := f.Host.Engine.Logs(ctx, box.ID, runtime.LogOptions{Since: rec.At, Stdout: rec})
			return errors.Join(err, rec.Err)
		default:
			downSince = time.Time{}
			rec.Restart()
			err := runtime.Follow(ctx, f.Host.Ours(run), taskID, runtime.LogOptions{Since: rec.At, Stdout: rec})
			if rec.Err != nil {
				return fmt.Errorf("write the record of the run: %w", rec.Err)
			}
			if err == nil {
				// The stream ends a moment before the state says so.
				if box, err := f.Host.Find(ctx, run); err == nil && box != nil && !box.Live() {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(ReconnectPause):
		}
	}
}

func (f *Follower) engineGone() time.Duration {
	if f.EngineGone > 0 {
		return f.EngineGone
	}
	return engineGone
}
