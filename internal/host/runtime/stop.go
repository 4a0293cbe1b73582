package runtime

import (
	"context"
	"errors"
	"sync"
	"time"
)

// stopPoll is the interval for finding a box that is being created, or whose engine is unavailable.
const stopPoll = 100 * time.Millisecond

// Stopper stops one box while other code follows it. Its methods may be called concurrently; call Wait after the last Request.
type Stopper struct {
	// Find returns the box; nil if there is none to stop, ErrCreating while it is being created.
	Find func(context.Context) (*Instance, error)
	Stop func(ctx context.Context, id string, grace time.Duration) error // Runtime.Stop
	// Failed receives the error of a failed stop, unless the stop's context has ended.
	Failed func(error)

	mu    sync.Mutex
	last  chan struct{} // closed when the latest graceful stop has ended
	under sync.WaitGroup
}

// Request stops the box with this grace, or kills it with a grace of 0. It returns at once. The stop waits, until ctx ends, for
// a box that is being created and for an unavailable engine. A graceful stop waits for the previous one, since a second
// signal would make the box hurry; a kill does not wait.
func (s *Stopper) Request(ctx context.Context, grace time.Duration) {
	before, over := s.turn(grace)
	s.under.Go(func() {
		defer close(over)
		select {
		case <-before:
		case <-ctx.Done():
			return
		}
		if err := s.stop(ctx, grace); err != nil && ctx.Err() == nil {
			s.Failed(err)
		}
	})
}

// turn returns the channel that a stop waits for, and the one that it closes at its end.
func (s *Stopper) turn(grace time.Duration) (before <-chan struct{}, over chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over = make(chan struct{})
	if grace == 0 || s.last == nil {
		free := make(chan struct{})
		close(free)
		before = free
	} else {
		before = s.last
	}
	if grace > 0 {
		s.last = over
	}
	return before, over
}

// Wait waits for all stops to end. A stop ends with its context.
func (s *Stopper) Wait() { s.under.Wait() }

func (s *Stopper) stop(ctx context.Context, grace time.Duration) error {
	for {
		box, err := s.Find(ctx)
		switch {
		case errors.Is(err, ErrCreating), errors.Is(err, ErrUnavailable):
		case err != nil || box == nil:
			return err
		default:
			return s.Stop(ctx, box.ID, grace)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stopPoll):
		}
	}
}
