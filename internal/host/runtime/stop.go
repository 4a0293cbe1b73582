package runtime

import (
	"context"
	"errors"
	"sync"
	"time"
)

// stopPoll is the pause between two tries to find a box that is being made, or whose engine is away.
const stopPoll = 100 * time.Millisecond

// Stopper stops one box, of a task or of the cache's upkeep, while other code follows it. Its methods may be called
// concurrently; call Wait only after the last Ask.
type Stopper struct {
	// Find returns the box; nil if there is none to stop, ErrCreating while it is being made.
	Find func(context.Context) (*Instance, error)
	// Stop is Runtime.Stop.
	Stop func(ctx context.Context, id string, grace time.Duration) error
	// Failed is called with the error of a stop that did not succeed, but not after the stop's context has ended.
	Failed func(error)

	mu    sync.Mutex
	last  chan struct{} // closed when the latest gentle stop is over
	under sync.WaitGroup
}

// Request stops the box with this grace, or kills it with a grace of 0, and does not wait for its end. It waits, until ctx
// ends, for a box that is being made and for an engine that is away. A second signal would make a box hurry, so a gentle
// stop waits for the one before it; a kill does not wait.
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

// Wait returns when no stop is under way. A stop ends with its context.
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
