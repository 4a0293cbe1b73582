package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
)

// Become replaces this process by a program with the user, control group, namespace and filter of a child of Start, and
// with this process's terminal, session and standard files. It takes Argv, Dir, Env, User and OOMScoreAdj of the Spec.
// It returns only an error; then the process must end, since it may have lost rights.
func Become(s Spec) error {
	if len(s.Argv) == 0 || s.User == nil {
		return errors.New("become a program: command or user missing")
	}
	path, err := lookPath(s.Argv[0], s.Env)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	if s.OOMScoreAdj > 0 {
		_ = os.WriteFile("/proc/self/oom_score_adj", fmt.Appendf(nil, "%d", s.OOMScoreAdj), 0) // best effort, as in Start
	}
	return fmt.Errorf("start %s: %w", s.Argv[0], onThrowawayThread(func() error {
		if err := errors.Join(s.User.Cgroup.join(), s.User.Namespace.enter()); err != nil {
			return err
		}
		// Of every thread: otherwise others would see the first thread's user until the program starts.
		if err := BecomeUser(*s.User); err != nil {
			return err
		}
		if err := unix.Chdir(s.Dir); err != nil {
			return fmt.Errorf("enter %s: %w", s.Dir, err)
		}
		if err := giveUp(); err != nil {
			return err
		}
		return syscall.Exec(path, s.Argv, s.Env) //nolint:forbidigo // this package starts processes; os/exec cannot take the place of its caller
	}))
}

// BecomeUser makes all threads of this process the user's, for good, without root's capabilities. It takes UID, GID and Groups.
func BecomeUser(c Credential) error {
	groups := make([]int, len(c.Groups))
	for i, g := range c.Groups {
		groups[i] = int(g)
	}
	if err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(int(c.GID)), syscall.Setuid(int(c.UID))); err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	return nil
}

// join brings this whole process into the group.
func (c *Cgroup) join() error {
	if c == nil {
		return nil
	}
	dirs := slices.Clone(c.V1)
	if c.Unified != "" {
		dirs = append(dirs, c.Unified)
	}
	for _, dir := range dirs {
		if err := cgroupfs.Enter(dir); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}
