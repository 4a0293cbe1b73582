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
		return exiterr.New(workorder.ExitUsage, err, "`sandbox-agent ps` lists sandboxes")
	case errors.Is(err, sandbox.ErrOtherOwner):
		code := workorder.ExitUsage
		if errors.Is(err, sandbox.ErrNotFound) {
			code = workorder.ExitNotFound
		}
		return exiterr.New(code, err,
			"take another name; `sandbox-agent down --force --all-users NAME` removes a sandbox of another state directory")
	case errors.Is(err, sandbox.ErrDamaged):
		return exiterr.New(workorder.ExitGeneral, err, "`sandbox-agent down --force NAME` removes what is left of it")
	case errors.Is(err, sandbox.ErrUnsaved):
		return exiterr.New(workorder.ExitGeneral, err, "`sandbox-agent down --force NAME` removes it all the same")
	case errors.Is(err, sandbox.ErrExists):
		return exiterr.New(workorder.ExitUsage, err, "`sandbox-agent exec NAME COMMAND` uses it, `sandbox-agent down NAME` removes it")
	case errors.Is(err, sandbox.ErrSnapshotExists):
		return exiterr.New(workorder.ExitUsage, err, "take another name, or remove it with `sandbox-agent snapshot rm`")
	case errors.Is(err, sandbox.ErrInUse):
		return exiterr.New(workorder.ExitGeneral, err, "`sandbox-agent reset` or `sandbox-agent down` of that sandbox comes first")
	case errors.Is(err, sandbox.ErrNotFound):
		return NotFound(err, "")
	case errors.Is(err, sandbox.ErrUnavailable): // before what another runtime cannot give
		return exiterr.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	case errors.Is(err, sandbox.ErrUnsupported):
		return exiterr.New(workorder.ExitInvalid, err, "`sandbox-agent runtime list` says what each runtime can give here")
	case errors.Is(err, sandbox.ErrInvalidSpec): // it comes from the command line: project files are checked before
		return exiterr.New(workorder.ExitUsage, err, "")
	case errors.Is(err, sandbox.ErrPortUnavailable), errors.Is(err, portforward.ErrPortUnavailable):
		return exiterr.New(workorder.ExitPort, err, "take another port of this machine, or none for any that is free")
	case errors.Is(err, sandbox.ErrConnectionLost):
		return exiterr.New(workorder.ExitBox, err, "`sandbox-agent logs NAME` says why it ended, if it did; the next command starts it again")
	}
	return err
}
