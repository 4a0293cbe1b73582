package app

import (
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Usagef returns an error of the caller's input.
func Usagef(format string, v ...any) error {
	return fault.New(workorder.ExitUsage, fmt.Errorf(format, v...), "")
}
