package proc

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startApart starts cmd from a thread of its own: what the thread gives up or enters before (a control group, a place, new
// privileges, system calls) is inherited by fork and cannot be taken back, so the thread is thrown away.
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

// startTied starts cmd from a thread that lives until done: the kernel sends the signal when the thread ends that has
// forked. The thread is in the child's control group of version 1 meanwhile, and is thrown away with what it entered.
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

// onThrowawayThread calls f on a thread that ends after it: a goroutine that ends locked takes its thread with it. The process's first
// thread alone would stay, and is what the whole process looks like from outside: a kill of the agent's control group would then be
// one of boot. So it is never used.
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

// giveUp gives up new privileges, and all system calls that an ordinary container does not have.
func giveUp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return filterCalls()
}
