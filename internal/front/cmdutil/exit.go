package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
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

// Exit codes of exec beside the command's own: those of GNU timeout.
const (
	// ExitTimedOut is that of a command that reached its time limit.
	ExitTimedOut = 124
	// ExitCannotRun is that of a command that cannot be started, as of a shell.
	ExitCannotRun = 126
	// ExitLost is that of a command whose connection was lost.
	ExitLost = 125
)

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
	if errors.Is(err, sandbox.ErrConnectionLost) {
		return exiterr.New(ExitLost, err, "whether the command has ended is not known: `sandbox-agent ps` shows whether the sandbox runs")
	}
	return app.SandboxError(err)
}

// ExitOf returns an error with the exit code of a command; nil for 0.
func ExitOf(r sandbox.ExitStatus) error {
	switch {
	case r.TimedOut:
		return Exit(ExitTimedOut)
	case r.ExitCode != 0:
		return Exit(r.ExitCode)
	}
	return nil
}

// ExitCode is the exit code for an error.
func ExitCode(err error) int {
	var coded interface{ ExitCode() int }
	var ambiguous *taskstore.AmbiguousError
	switch {
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.Is(err, taskstore.ErrNotFound):
		return workorder.ExitNotFound
	case errors.As(err, &ambiguous), errors.Is(err, taskstore.ErrExists):
		return workorder.ExitUsage
	}
	if c := exiterr.Code(err); c != workorder.ExitGeneral {
		return c
	}
	if errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrIsolation) {
		return workorder.ExitBox
	}
	return workorder.ExitGeneral
}

// Hint is the advice for an error; empty if there is none.
func Hint(err error) string {
	// These are at the bottom of errors whose own hint is about something else.
	if denied, ok := errors.AsType[*runtime.DeniedError](err); ok {
		return denied.Hint()
	}
	if proc.Missing(err) == "git" {
		return "install git (`sudo apt install git`, `brew install git`), or put it on PATH: repositories and credentials need it"
	}
	if h := exiterr.Hint(err); h != "" {
		return h
	}
	if e, ok := errors.AsType[*taskstore.DamagedError](err); ok {
		return "`sandbox-agent rm --force " + e.TaskID + "` forgets the task here, with its sandboxes; `sandbox-agent continue " + e.TaskID +
			" --project P` goes on from the remote then"
	}
	var option *projects.OptionError
	var missing *projects.NotFoundError
	switch {
	case errors.As(err, &option):
		return option.Hint
	case errors.As(err, &missing):
		return projects.NotFoundHint
	case errors.Is(err, runtime.ErrUnavailable):
		return "start the Docker engine, or point DOCKER_HOST at one that runs"
	case errors.Is(err, taskstore.ErrExists):
		return "choose another --task-id, or forget that task with `sandbox-agent rm`"
	}
	return ""
}
