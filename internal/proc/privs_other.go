//go:build !linux

package proc

import (
	"errors"
	"os/exec"
)

// startNoNewPrivs has no equivalent here; only the guest, which is Linux, changes the user.
func startNoNewPrivs(*exec.Cmd) error {
	return errors.New("running as another user is only supported on Linux")
}
