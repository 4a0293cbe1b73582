package jailshim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// What is left of an earlier shim, which was killed, is in a group for moments.
const (
	groupTime = 5 * time.Second
	groupLook = time.Millisecond
)

func makeGroups(all []Group) error {
	if err := removeGroups(all); err != nil { // of an earlier shim
		return err
	}
	for _, g := range all {
		if err := os.Mkdir(g.Dir, 0o755); err != nil {
			return fmt.Errorf("make the sandbox's control group: %w", err)
		}
		for _, s := range g.Set {
			err := cgroupfs.Write(g.Dir, s.File, s.Value)
			if err != nil && (!s.Optional || !errors.Is(err, fs.ErrNotExist)) {
				return fmt.Errorf("limit the sandbox: %w", err)
			}
		}
	}
	return nil
}

// removeGroups ends what is in them, and removes them.
func removeGroups(all []Group) error {
	var errs []error
	for _, g := range all {
		errs = append(errs, RemoveGroup(g.Dir))
	}
	return errors.Join(errs...)
}

// RemoveGroup ends what is in a group without groups below it, and removes it. That it is gone is no error.
func RemoveGroup(dir string) error {
	for until := time.Now().Add(groupTime); ; time.Sleep(groupLook) {
		err := unix.Rmdir(dir) // os.Remove says less of why
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(until) {
			return fmt.Errorf("remove the sandbox's control group %s: %w", dir, err)
		}
		pids, _ := cgroupfs.PIDs(dir) // without, the next round tries again
		for _, pid := range pids {
			// A thread of this process may be in it for another moment.
			if pid > 1 && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

func cgroup(all []Group) *proc.Cgroup {
	if len(all) == 0 {
		return nil
	}
	c := &proc.Cgroup{}
	for _, g := range all {
		if g.Unified {
			c.Unified = g.Dir
		} else {
			c.V1 = append(c.V1, g.Dir)
		}
	}
	return c
}
