package runtime

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// statePoll is the interval for reading a box's state next to its stream; streamGrace is the time for its stream to end
	// after the box.
	statePoll   = 2 * time.Second
	streamGrace = time.Second
	listTimeout = 15 * time.Second
)

// ErrLogStreamOpen means that a log stream outlived its box. The rest of the output can be read without following.
var ErrLogStreamOpen = errors.New("the engine did not end the sandbox's output")

// Follower is the part of an engine that following needs.
type Follower interface {
	Instances(ctx context.Context, labels map[string]string) ([]Instance, error)
	Logs(ctx context.Context, id string, o LogOptions) error
}

// AttemptFilter limits a Follower to the box of one attempt: boxes of past attempts may have been kept.
type AttemptFilter struct {
	Follower
	ID string // empty for a record of an older version, whose box has no such label
}

// Instances returns the instances of the attempt.
func (a AttemptFilter) Instances(ctx context.Context, labels map[string]string) ([]Instance, error) {
	if labels = maps.Clone(labels); a.ID != "" {
		labels[workorder.LabelAttempt] = a.ID
	}
	return a.Follower.Instances(ctx, labels)
}

// Find returns the task's box; nil if it does not exist.
func Find(ctx context.Context, e Follower, taskID string) (*Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	boxes, err := e.Instances(ctx, map[string]string{workorder.LabelTask: taskID})
	if err != nil || len(boxes) == 0 {
		return nil, err
	}
	return &boxes[0], nil
}

// Follow copies the output of the task's box until it ends. It also reads the box's state: an engine may not end the stream of
// an exited container (seen with 20.10 on a loaded machine).
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
			if b, err := Find(ctx, e, taskID); err == nil && (b == nil || !b.Running()) {
				select {
				case <-ctx.Done():
				case <-time.After(streamGrace):
					cancel(ErrLogStreamOpen)
				}
				return
			}
		}
	}()
	o.Follow = true
	err = e.Logs(ctx, box.ID, o)
	if errors.Is(context.Cause(ctx), ErrLogStreamOpen) {
		return ErrLogStreamOpen
	}
	return err
}
