package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCreating means that the box is still being created.
var ErrCreating = errors.New("the sandbox is being made")

// Watcher watches one box, of a task or of the cache's upkeep, until it has ended.
type Watcher struct {
	// Find returns the box; nil if it is gone.
	Find func(context.Context) (*Instance, error)
	// Read reads the box's output until its stream ends, or all the rest if the box has ended. A broken stream is not an
	// error. If it returns done, the watch ends.
	Read func(context.Context, *Instance) (done bool, err error)
	// Away is called once when the engine stops answering; it may be nil.
	Away func(error)
	// Patience is how long to wait for an engine that does not answer.
	Patience time.Duration
	// Pause is the time between two looks at the box.
	Pause time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Watch returns nil when the box has ended or is gone, or when Read is done. It continues over broken streams and restarts
// of the engine. Its error is Find's or Read's, the context's cause, or wraps ErrUnavailable for an engine that stayed
// away.
func (w *Watcher) Watch(ctx context.Context) error {
	now := w.Now
	if now == nil {
		now = time.Now
	}
	var away time.Time
	for {
		box, err := w.Find(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrUnavailable):
			if away.IsZero() {
				away = now()
				if w.Away != nil {
					w.Away(err)
				}
			}
			if now().Sub(away) > w.Patience {
				return fmt.Errorf("the engine has not answered for %s: %w", w.Patience, err)
			}
		case errors.Is(err, ErrCreating):
			away = time.Time{}
		case err != nil || box == nil:
			return err
		default:
			away = time.Time{}
			done, err := w.Read(ctx, box)
			if errors.Is(err, ErrNotFound) && !box.Running() {
				return nil // it was removed after it was found
			}
			if done || err != nil || !box.Running() {
				return err
			}
			// The stream ends a moment before the state says so.
			if after, err := w.Find(ctx); err == nil && (after == nil || !after.Running()) {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(w.Pause):
		}
	}
}
