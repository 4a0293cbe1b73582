// Package follow records a box's events until the box has ended, and stops the box on request.
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
	// EngineGone overrides how long to wait for an engine that is away.
	EngineGone time.Duration
}

const (
	// engineGone is how long to wait for an engine that stopped answering: a restart of the
	// engine takes seconds, and a person should not wait longer than this.
	engineGone = 30 * time.Second
	// ReconnectPause is the time between two connections, so that a stream that breaks at
	// once causes no busy loop.
	ReconnectPause = 300 * time.Millisecond
)

// Run records the box's events until it has ended, over broken streams and
// restarts of the engine. A box that is gone has ended too.
func (f *Follower) Run(ctx context.Context, run *store.Record, rec *journal.Recorder) error {
	taskID := run.TaskID
	w := &runtime.Watcher{
		Find: func(ctx context.Context) (*runtime.Box, error) { return f.Host.Find(ctx, run) },
		Read: func(ctx context.Context, box *runtime.Box) (bool, error) {
			rec.Restart()
			o := runtime.LogOptions{Since: rec.At, Stdout: rec}
			if !box.Live() {
				return true, errors.Join(f.Host.Engine.Logs(ctx, box.ID, o), rec.Err)
			}
			if err := runtime.Follow(ctx, f.Host.Ours(run), taskID, o); err != nil && rec.Err == nil {
				f.Host.Log.Debug("the stream of the sandbox broke", "task", taskID, "error", err)
			}
			if rec.Err != nil {
				return false, fmt.Errorf("write the record of the run: %w", rec.Err)
			}
			return false, nil
		},
		Away: func(err error) {
			f.Host.Log.Warn("the engine stopped answering", "task", taskID, "error", err)
		},
		Patience: f.engineGone(), Pause: ReconnectPause, Now: f.Host.Time,
	}
	err := w.Watch(ctx)
	if errors.Is(err, runtime.ErrUnavailable) && ctx.Err() == nil {
		return fault.New(workorder.ExitBox, fmt.Errorf("follow task %s: %w", taskID, err),
			"the run is not forgotten: when the engine is back, `sandbox-agent result "+taskID+"` collects it")
	}
	return err
}

func (f *Follower) engineGone() time.Duration {
	if f.EngineGone > 0 {
		return f.EngineGone
	}
	return engineGone
}
