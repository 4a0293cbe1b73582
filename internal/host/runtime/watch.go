package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotYet is what Watcher.Find returns for a box that is being made.
var ErrNotYet = errors.New("the sandbox is being made")

// Watcher looks after one box, of a task or of the cache's upkeep, until it has ended.
type Watcher struct {
	// Find returns the box; nil when it is gone.
	Find func(context.Context) (*Box, error)
	// Read reads what the box says until its stream ends, or all that is left when the box has ended. A stream that breaks is
	// no error. Done ends the watch.
	Read func(context.Context, *Box) (done bool, err error)
	// Away is called once when the engine stops answering; nil means nobody is told.
	Away func(error)
	// Patience is how long an engine that does not answer is waited for.
	Patience time.Duration
	// Pause comes between two looks.
	Pause time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Watch returns nil when the box has ended or is gone, or when Read is done. It goes on over broken streams and restarts of
// the engine. Its error is Find's or Read's, the context's cause, or wraps ErrUnavailable for an engine that stayed away.
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
		case errors.Is(err, ErrNotYet):
			away = time.Time{}
		case err != nil || box == nil:
			return err
		default:
			away = time.Time{}
			if done, err := w.Read(ctx, box); done || err != nil || !box.Live() {
				return err
			}
			// The stream ends a moment before the state says so.
			if after, err := w.Find(ctx); err == nil && (after == nil || !after.Live()) {
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
