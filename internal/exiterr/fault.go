// Package exiterr is the error that a user can act on: what went wrong, what to do next,
// and the exit code of its kind. It imports no other package of the host, so that each of
// them can return it.
package exiterr

import (
	"errors"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Error is an error with an exit code and a hint.
type Error struct {
	Code int    // an exit code of package workorder
	Hint string // what to do next; may be empty
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// New gives err an exit code and a hint. It returns nil for a nil err.
func New(code int, err error, hint string) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Hint: hint, Err: err}
}

// Code is the exit code in err: 0 for nil, the general one if err has none.
func Code(err error) int {
	if err == nil {
		return workorder.ExitOK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return workorder.ExitGeneral
}

// Hint is the hint in err, or empty.
func Hint(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Hint
	}
	return ""
}
