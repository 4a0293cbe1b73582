package mcpserver

import (
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// WrongCall makes a WrongError of an error that the agent can correct in its call.
func WrongCall(err error) error {
	if err == nil {
		return nil
	}
	code := app.ExitCode(err)
	if h := app.Hint(err); h != "" {
		err = fmt.Errorf("%w; %s", err, h)
	}
	if slices.Contains([]int{workorder.ExitUsage, workorder.ExitNotFound, workorder.ExitNoProject}, code) {
		return &WrongError{Err: err}
	}
	return err
}

// Wrongf returns a WrongError.
func Wrongf(format string, v ...any) error { return &WrongError{Err: fmt.Errorf(format, v...)} }
