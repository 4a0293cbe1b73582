package proc

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startApart starts cmd from a thread of its own: what the thread gives up or enters before (a control group, a place, new
// privileges, system calls) is inherited by fork and cannot be taken back, so the thread is thrown away (a goroutine that ends locked takes its
// thread with it).
func startApart(cmd *exec.Cmd, c *Cgroup, user *Credential) error {
	done, err := c.begin(cmd)
	if err != nil {
		return err
	}
	defer done()
	errc := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := c.enter(); err != nil {
			errc <- err
			return
		}
		if user != nil {
			if err := errors.Join(user.Place.enter(), giveUp()); err != nil {
				errc <- err
				return
			}
		}
		errc <- cmd.Start()
	}()
	return <-errc
}

// giveUp gives up new privileges, and all system calls that an ordinary container does not have.
func giveUp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return filterCalls()
}
