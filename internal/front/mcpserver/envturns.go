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
	// aloneTime bounds how long the recreation of an environment waits for other calls; later calls wait behind it.
	aloneTime = 30 * time.Second
)

// turn orders the calls of one environment: its recreation waits for all other calls, and they wait for it.
func (s *Server) turn(id string) *semaphore.Weighted {
	t, _ := s.turns.LoadOrStore(id, semaphore.NewWeighted(maxCalls))
	return t.(*semaphore.Weighted)
}

// used keeps an environment from being recreated until done; alone also excludes other calls.
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

// usedBriefly is used with a bound on the wait of an exclusive call.
func (s *Server) usedBriefly(ctx context.Context, id string, alone bool) (done func(), err error) {
	if alone {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, aloneTime, fmt.Errorf("a command runs in environment %s: try again when it has ended", id))
		defer cancel()
	}
	return s.used(ctx, id, alone)
}
