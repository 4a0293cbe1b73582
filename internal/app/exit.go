package app

import (
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
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

// Exit codes of exec beside the command's own: those of GNU timeout.
const (
	// ExitTimedOut is that of a command that reached its time limit.
	ExitTimedOut = 124
	// ExitCannotRun is that of a command that cannot be started, as of a shell.
	ExitCannotRun = 126
	// ExitLost is that of a command whose connection was lost.
	ExitLost = 125
)

// ErrInterrupted is the error of a wait that the caller has ended.
var ErrInterrupted = tasks.ErrInterrupted

// SignalCode returns the exit code of a command that a signal ended; 0 of other errors.
func SignalCode(err error) int {
	if s, ok := errors.AsType[*signals.Stopped](err); ok {
		return ExitSignal + int(s.Signal)
	}
	return 0
}

// EndError gives an error of a command that had begun its exit code and hint.
func EndError(err error) error {
	if errors.Is(err, sandbox.ErrConnectionLost) {
		return exiterr.New(ExitLost, err, "whether the command has ended is not known: `sandbox-agent ps` shows whether the sandbox runs")
	}
	return SandboxError(err)
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
		return "choose another id, or forget that task with `sandbox-agent rm`"
	}
	return ""
}
