package sandbox

import (
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

var (
	// ErrNotFound means that a sandbox, image, command or file does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists means that a sandbox or file of that name exists.
	ErrExists = errors.New("already exists")
	// ErrName means that the name is not valid for a sandbox or snapshot. It is also an ErrInvalidSpec.
	ErrName = errors.New("not a valid name")
	// ErrOtherOwner means that the sandbox belongs to another state directory and cannot be used. With Options.AllUsers
	// it can be removed.
	ErrOtherOwner = errors.New("belongs to another state directory")
	// ErrDamaged means that a record cannot be read. RemoveRecord removes such a sandbox.
	ErrDamaged = errors.New("damaged record")
	// ErrUnsaved means that the sandbox has files that could not be saved.
	ErrUnsaved = errors.New("unsaved files")
	// ErrUnavailable means that the runtime does not answer.
	ErrUnavailable = errors.New("the engine does not answer")
	// ErrUnsupported means that the runtime does not support a requirement of the Spec.
	ErrUnsupported = errors.New("not supported by the runtime")
	// ErrInvalidSpec means that a Spec or Command is invalid.
	ErrInvalidSpec = errors.New("invalid spec")
	// ErrConnectionLost means that the connection to the sandbox broke. Its commands may still run.
	ErrConnectionLost = errors.New("the connection to the sandbox was lost")
	// ErrConnectionRefused means that nothing listens at an address in the sandbox.
	ErrConnectionRefused = errors.New("connection refused")
)

// public maps an internal error to one of this package.
func public(err error) error {
	if err == nil {
		return nil
	}
	for _, row := range []struct{ from, to error }{ // the first match counts
		{runtime.ErrUnsupported, ErrUnsupported},
		{runtime.ErrIsolation, ErrUnsupported},
		{runtime.ErrInUse, ErrInUse},
		{runtime.ErrConflict, ErrExists},
		{runtime.ErrNotFound, ErrNotFound},
		{runtime.ErrUnavailable, ErrUnavailable},
		{wireclient.ErrNoNested, ErrUnsupported},
		{wireclient.ErrConnectionLost, ErrConnectionLost},
		{runtime.ErrExited, ErrConnectionLost},
		{wireclient.ErrTooManyEntries, ErrTooLarge},
	} {
		if errors.Is(err, row.from) {
			return &kindError{row.to, err}
		}
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Code {
		case wire.CodeNotFound:
			return &kindError{ErrNotFound, err}
		case wire.CodeRefused:
			return &kindError{ErrConnectionRefused, err}
		case wire.CodeUnsupported:
			return &kindError{ErrUnsupported, err}
		case wire.CodeBadRequest:
			return &kindError{ErrInvalidSpec, err}
		case wire.CodeDenied:
			return &kindError{ErrPermission, err}
		case wire.CodeExists:
			return &kindError{ErrExists, err}
		case wire.CodeFileType:
			return &kindError{ErrFileType, err}
		case wire.CodeExhausted:
			return &kindError{ErrLimitReached, err}
		}
	}
	return err
}

// kindError is an error that matches kind; the text of err includes it.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }
