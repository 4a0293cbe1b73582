package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lockPause is between two looks at a task that another command is just deciding on.
	lockPause = 100 * time.Millisecond
	// decideWait bounds the wait for it: it asks a remote and a forge, each of which has seconds to answer, and
	// may put an engine's slow copy of an output to its end.
	decideWait = 3 * time.Minute
	// moveWait bounds the wait for a command that is renaming a few files of a task.
	moveWait = 30 * time.Second
)

// errHeld ends the wait for another command.
var errHeld = errors.New("another command holds the task and does not go on with it")

// waiting is the time that a command has for what another one decides.
func (a *App) waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if a.patience > 0 {
		most = a.patience
	}
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: waited for %s", errHeld, most))
}

// gaveUp is the error of a wait that ended without what was waited for: the user's doing, or too long.
func gaveUp(ctx context.Context, st *store.Store, id string) error {
	if err := context.Cause(ctx); errors.Is(err, errHeld) {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s: %w", id, err), "`fuser "+st.LockPath(id)+"` names the process: end it, then try again")
	}
	return &ending{exitLeft}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
