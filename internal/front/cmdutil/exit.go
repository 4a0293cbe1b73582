package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
)

const (
	// ExitSignal plus its number is a shell's exit code of a process that a signal ended.
	ExitSignal = 128
	// ExitLeft is the exit code of interrupted following, as of a process that SIGINT ended. ExitInterrupted would mean that the task was
	// interrupted.
	ExitLeft = 130
)

// ExitError is the error of a command that has printed everything: only an exit code.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit %d", e.Code) }

// Exit returns an error that only sets the exit code.
func Exit(code int) error { return &ExitError{code} }

// SignalCode returns the exit code of a command that a signal ended; 0 of other errors.
func SignalCode(err error) int {
	if s, ok := errors.AsType[*signals.Stopped](err); ok {
		return ExitSignal + int(s.Signal)
	}
	return 0
}

// Interrupted returns the error of a command that its user ended, and that has nothing to tell them.
func Interrupted(ctx context.Context) error {
	return Exit(cmp.Or(SignalCode(context.Cause(ctx)), ExitLeft))
}
