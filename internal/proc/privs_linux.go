package proc

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startApart starts cmd from a thread of its own, which is thrown away: the child inherits what the thread enters or gives up.
func startApart(cmd *exec.Cmd, c *Cgroup, user *Credential) error {
	done, err := c.begin(cmd)
	if err != nil {
		return err
	}
	defer done()
	return onThrowawayThread(func() error {
		if err := c.enter(); err != nil {
			return err
		}
		if user != nil {
			if err := errors.Join(user.Namespace.enter(), giveUp()); err != nil {
				return err
			}
		}
		return cmd.Start()
	})
}

// startTied starts cmd from a thread that lives until done: the kernel sends the signal when the forking thread ends.
func startTied(cmd *exec.Cmd, c *Cgroup, s Spec, done <-chan struct{}) error {
	begun, err := c.begin(cmd)
	if err != nil {
		return err
	}
	defer begun()
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Cloneflags = s.Tied, s.Namespaces
	errc := make(chan error, 2) // of the start, and of the thread's end, which is not waited for
	go func() {
		errc <- onThrowawayThread(func() error {
			err := c.enter()
			if err == nil && s.OwnSockets {
				err = scopeSockets()
			}
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				return err
			}
			errc <- nil
			<-done
			return nil
		})
	}()
	return <-errc
}

// onThrowawayThread calls f on a thread that ends after it. It never uses the process's first thread, which would stay
// and show f's control group as the whole process's.
func onThrowawayThread(f func() error) error {
	errc := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			errc <- onThrowawayThread(f) // held here, the first thread is not where that runs
			return
		}
		errc <- f()
	}()
	return <-errc
}

// giveUp gives up new privileges, and the system calls that an ordinary container does not have.
func giveUp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return filterCalls()
}
