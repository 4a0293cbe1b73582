package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
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
func (l *Launcher) follow(ctx context.Context, taskID string, rec *recorder) error {
	var downSince time.Time
	for {
		box, err := l.box(ctx, taskID)
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
			err := engine.Follow(ctx, l.Engine, taskID, engine.LogOptions{Since: rec.at, Stdout: rec})
			if rec.err != nil {
				return fmt.Errorf("write the record of the run: %w", rec.err)
			}
			if err == nil {
				// The stream ends a moment before the state says so.
				if box, err := l.box(ctx, taskID); err == nil && box != nil && !box.Live() {
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

// box finds the task's container; nil when there is none.
func (l *Launcher) box(ctx context.Context, taskID string) (*engine.Box, error) {
	return engine.Find(ctx, l.Engine, taskID)
}
