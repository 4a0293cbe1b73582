package app

import (
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/portforward"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Usagef returns an error of the caller's input.
func Usagef(format string, v ...any) error {
	return exiterr.New(workorder.ExitUsage, fmt.Errorf(format, v...), "")
}

// NotFound returns an error for a name that nothing has.
func NotFound(err error, hint string) error { return exiterr.New(workorder.ExitNotFound, err, hint) }

// SandboxError gives an error of package sandbox its exit code and hint.
func SandboxError(err error) error {
	if _, unknown := errors.AsType[*UnknownNameError](err); err == nil || unknown {
		return err
	}
	switch {
	case errors.Is(err, sandbox.ErrName):
		return exiterr.New(workorder.ExitUsage, err, "list sandboxes with: sandbox-agent ps --sandboxes")
	case errors.Is(err, sandbox.ErrOtherOwner):
		code := workorder.ExitUsage
		if errors.Is(err, sandbox.ErrNotFound) {
			code = workorder.ExitNotFound
		}
		return exiterr.New(code, err,
			"choose another name, or remove the sandbox of the other state directory with: sandbox-agent down --force --all-users NAME")
	case errors.Is(err, sandbox.ErrDamaged):
		return exiterr.New(workorder.ExitGeneral, err, "remove the rest with: sandbox-agent down --force NAME")
	case errors.Is(err, sandbox.ErrUnsaved):
		return exiterr.New(workorder.ExitGeneral, err, "remove it without saving: sandbox-agent down --force NAME")
	case errors.Is(err, sandbox.ErrExists):
		return exiterr.New(workorder.ExitUsage, err, "use it with: sandbox-agent exec NAME COMMAND; remove it with: sandbox-agent down NAME")
	case errors.Is(err, sandbox.ErrSnapshotExists):
		return exiterr.New(workorder.ExitUsage, err, "choose another name, or remove the snapshot with: sandbox-agent snapshot rm")
	case errors.Is(err, sandbox.ErrInUse):
		return exiterr.New(workorder.ExitGeneral, err, "reset or remove that sandbox first")
	case errors.Is(err, sandbox.ErrNotFound):
		return NotFound(err, "")
	case errors.Is(err, sandbox.ErrUnavailable): // before what another runtime cannot give
		return exiterr.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	case errors.Is(err, sandbox.ErrUnsupported):
		return exiterr.New(workorder.ExitInvalid, err, "list the features of each runtime with: sandbox-agent runtime list")
	case errors.Is(err, sandbox.ErrInvalidSpec): // it comes from the command line: project files are checked before
		return exiterr.New(workorder.ExitUsage, err, "")
	case errors.Is(err, sandbox.ErrPortUnavailable), errors.Is(err, portforward.ErrPortUnavailable):
		return exiterr.New(workorder.ExitPort, err, "choose another port of this machine, or leave the port out to get a free one")
	case errors.Is(err, sandbox.ErrConnectionLost):
		return exiterr.New(workorder.ExitBox, err, "find out why it ended with: sandbox-agent logs NAME; the next command restarts it")
	}
	return err
}
