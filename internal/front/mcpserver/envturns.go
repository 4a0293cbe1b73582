package mcpserver

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxCalls is how many calls use one environment at once.
	maxCalls = 1 << 20
	// aloneTime is what whoever makes an environment anew waits for other calls: all later ones wait behind them.
	aloneTime = 30 * time.Second
)

// turn keeps calls of one environment from each other: whoever makes it anew waits for all calls, and they for that one.
func (s *Server) turn(id string) *semaphore.Weighted {
	t, _ := s.turns.LoadOrStore(id, semaphore.NewWeighted(maxCalls))
	return t.(*semaphore.Weighted)
}

// used keeps an environment from being made anew, until done; alone also keeps others from using it.
func (s *Server) used(ctx context.Context, id string, alone bool) (done func(), err error) {
	t, n := s.turn(id), int64(1)
	if alone {
		n = maxCalls
	}
	if t.Acquire(ctx, n) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { t.Release(n) }, nil
}

// usedBriefly is used, where whoever wants it alone waits for a while only.
func (s *Server) usedBriefly(ctx context.Context, id string, alone bool) (done func(), err error) {
	if alone {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, aloneTime, fmt.Errorf("a command runs in environment %s: try again when it has ended", id))
		defer cancel()
	}
	return s.used(ctx, id, alone)
}
