package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCreating means that the box is still being created.
var ErrCreating = errors.New("the sandbox is being created")

// Watcher watches one box until it ends.
type Watcher struct {
	// Find returns the box; nil if it does not exist.
	Find func(context.Context) (*Instance, error)
	// Read reads the box's output until its stream ends, or all the rest if the box has ended. A broken stream is not an
	// error. If it returns done, the watch ends.
	Read     func(context.Context, *Instance) (done bool, err error)
	Away     func(error)      // called once when the engine stops answering; may be nil
	Patience time.Duration    // for an engine that does not answer
	Pause    time.Duration    // between two checks of the box
	Now      func() time.Time // nil means time.Now
}

// Watch returns nil when the box has ended or does not exist, or when Read is done. It continues across broken streams and
// restarts of the engine. Its error is Find's or Read's, the context's cause, or ErrUnavailable after Patience.
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
				return nil // it was removed after Find
			}
			if done || err != nil || !box.Running() {
				return err
			}
			// The stream ends shortly before the state changes.
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
