package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// LockPause is the pause between two tries to lock a task that another command is deciding on.
	LockPause = 100 * time.Millisecond
	// DecideWait bounds the wait for another command's decision: it asks a remote and a forge, each within
	// seconds, and may first finish an engine's slow copy of an output.
	DecideWait = 3 * time.Minute
	// MoveWait bounds the wait for a command that renames a few files of a task.
	MoveWait = 30 * time.Second
)

// ErrLeft ends a command that the user interrupted while it waited.
var ErrLeft = errors.New("left")

// errHeld ends the wait for another command.
var errHeld = errors.New("another command holds the task and does not go on with it")

// Waiting bounds the wait for another command's decision.
func Waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: waited for %s", errHeld, most))
}

// GaveUp is the error of a wait without success: the user interrupted it, or it took too long.
func GaveUp(ctx context.Context, lockPath, id string) error {
	if err := context.Cause(ctx); errors.Is(err, errHeld) {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s: %w", id, err), "`fuser "+lockPath+"` names the process: end it, then try again")
	}
	return ErrLeft
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
