package publish

import (
	"context"
	"fmt"
	"sync"
)

// turn is a lock that nobody waits for longer than its context lets it: a push that hangs may have it for minutes, and
// whoever is told to stop meanwhile has seconds. The zero value is free.
type turn struct {
	once  sync.Once
	taken chan struct{}
}

func (t *turn) take(ctx context.Context) error {
	t.once.Do(func() { t.taken = make(chan struct{}, 1) })
	if ctx.Err() == nil {
		select {
		case t.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("wait for what is being saved: %w", context.Cause(ctx))
}

func (t *turn) give() { <-t.taken }
