package cmdutil

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// ExitError is the error of a command that has printed everything: only an exit code.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit %d", e.Code) }

// Exit returns an error that only sets the exit code.
func Exit(code int) error { return &ExitError{code} }

// Interrupted returns the error of a command that its user ended, and that has nothing to tell them.
func Interrupted(ctx context.Context) error {
	return Exit(cmp.Or(app.SignalCode(context.Cause(ctx)), app.ExitLeft))
}

// TellEnd prints what the exit code does not say: why a command could not be started, and what ended it. more says
// how to get more memory; limit is the timeout, or 0 if it is not known.
func (f *Factory) TellEnd(r sandbox.ExitStatus, limit time.Duration, more string) {
	if r.Reason != "" {
		fmt.Fprintln(f.Stderr, "error: "+r.Reason)
	}
	switch {
	case r.TimedOut && limit > 0:
		fmt.Fprintf(f.Stderr, "the command was ended: its time limit of %s was reached: `--timeout` sets another\n", limit)
	case r.TimedOut:
		fmt.Fprintln(f.Stderr, "the command was ended: its time limit was reached")
	case r.OutOfMemory:
		fmt.Fprintln(f.Stderr, "the sandbox's memory limit ended the command: "+more)
	case r.Reason == "" && toldSignal(r.Signal):
		fmt.Fprintf(f.Stderr, "the command was ended by %s\n", unix.SignalName(r.Signal))
	}
}

// toldSignal reports whether a user would not know of the signal: a shell, too, says nothing of Ctrl-C, a closed pipe
// and a closed terminal.
func toldSignal(s syscall.Signal) bool {
	return s != 0 && s != syscall.SIGINT && s != syscall.SIGPIPE && s != syscall.SIGHUP
}

// UnknownEnd is the error of a command that had begun.
func UnknownEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return Interrupted(ctx)
	}
	return app.EndError(err)
}

// ExitOf returns an error with the exit code of a command; nil for 0.
func ExitOf(r sandbox.ExitStatus) error {
	switch {
	case r.TimedOut:
		return Exit(app.ExitTimedOut)
	case r.ExitCode != 0:
		return Exit(r.ExitCode)
	}
	return nil
}
