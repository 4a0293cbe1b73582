//go:build !linux

package proc

import (
	"errors"
	"os/exec"
)

// startApart is not supported: only the guest, which is Linux, changes the user or the control group.
func startApart(*exec.Cmd, *Cgroup, *Credential) error {
	return errors.New("running as another user or in another control group is only supported on Linux")
}

// startTied is not supported.
func startTied(*exec.Cmd, *Cgroup, Spec, <-chan struct{}) error {
	return errors.New("children tied to this process are only supported on Linux")
}
