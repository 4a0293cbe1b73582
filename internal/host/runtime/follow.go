package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// statePoll is how often a box's state is looked at beside its stream, and
	// streamGrace what a stream has to end by itself after the box.
	statePoll   = 2 * time.Second
	streamGrace = time.Second
	// listTimeout bounds one question about a box's state.
	listTimeout = 15 * time.Second
)

// ErrStuck ends a stream that outlived its box. The rest of the output can be
// read without following.
var ErrStuck = errors.New("the engine did not end the sandbox's output")

// Follower is what following needs of an engine.
type Follower interface {
	Boxes(ctx context.Context, labels map[string]string) ([]Box, error)
	Logs(ctx context.Context, id string, o LogOptions) error
}

// Find returns the task's box; nil when there is none.
func Find(ctx context.Context, e Follower, taskID string) (*Box, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	boxes, err := e.Boxes(ctx, map[string]string{workorder.LabelTask: taskID})
	if err != nil || len(boxes) == 0 {
		return nil, err
	}
	return &boxes[0], nil
}

// Follow copies the output of the task's box until it ends. An engine may forget
// to end the stream of a container that has exited (20.10 does so now and then on a
// loaded machine), so the box's state is looked at beside it.
func Follow(ctx context.Context, e Follower, taskID string, o LogOptions) error {
	box, err := Find(ctx, e, taskID)
	if err != nil || box == nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(statePoll):
			}
			if b, err := Find(ctx, e, taskID); err == nil && (b == nil || !b.Live()) {
				select {
				case <-ctx.Done():
				case <-time.After(streamGrace):
					cancel(ErrStuck)
				}
				return
			}
		}
	}()
	o.Follow = true
	err = e.Logs(ctx, box.ID, o)
	if errors.Is(context.Cause(ctx), ErrStuck) {
		return ErrStuck
	}
	return err
}
