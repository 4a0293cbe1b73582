package dockerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"
	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// nestRounds bounds the race with processes that enter the root group between the move and the enabling of controllers.
	nestRounds = 50
	nestPause  = 5 * time.Millisecond
)

type cgroupState struct {
	version int
	note    string
}

// prepareCgroups lets inner containers have groups of their own.
func (s system) prepareCgroups(ctx context.Context) (cgroupState, error) {
	all, err := s.mounts()
	if err != nil {
		return cgroupState{}, err
	}
	version, found := 1, false
	var locked []*mountinfo.Info
	for _, m := range all {
		switch {
		case m.FSType == "cgroup2" && m.Mountpoint == cgroupRoot:
			version, found = 2, true
		case m.FSType == "cgroup", m.FSType == "cgroup2":
			found = true
		default:
			continue
		}
		if readOnly(m) {
			locked = append(locked, m)
		}
	}
	if !found {
		return cgroupState{}, errors.New(
			"no cgroup hierarchy is mounted in the sandbox, so inner containers cannot be created: start the sandbox on an engine that " +
				"mounts /sys/fs/cgroup",
		)
	}
	for _, m := range locked {
		if err := s.remountRW(m); err != nil {
			return cgroupState{version: version}, err
		}
	}
	did := "already writable"
	if len(locked) > 0 {
		did = fmt.Sprintf("%d mounts made writable", len(locked))
	}
	if version == 1 {
		return cgroupState{1, "cgroup v1: " + did + ", nothing to nest"}, nil
	}
	nested, err := s.nest(ctx)
	return cgroupState{2, "cgroup v2: " + did + ", " + nested}, err
}

// nest moves every process out of the root group and enables its controllers for children: a v2 group that has
// processes cannot hand controllers on.
func (s system) nest(ctx context.Context) (string, error) {
	root := s.path(cgroupRoot)
	if own, err := os.ReadFile(s.path("/proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(own)) {
			if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && p != "/" && p != "/init" && p != "/boot" {
				return "", fmt.Errorf("the sandbox sees the host's cgroup tree (it is in %s): start it with --cgroupns private", p)
			}
		}
	}
	have, err := cgroupfs.Words(root, "cgroup.controllers")
	if err != nil {
		return "", fmt.Errorf("read cgroup controllers: %w", err)
	}
	on, err := cgroupfs.Words(root, "cgroup.subtree_control")
	if err != nil {
		return "", fmt.Errorf("read enabled cgroup controllers: %w", err)
	}
	if len(missing(have, on)) == 0 {
		return "controllers already enabled", nil
	}
	if err := os.MkdirAll(filepath.Join(root, "init"), 0o755); err != nil {
		return "", fmt.Errorf("create cgroup for the sandbox's processes: %w", err)
	}
	var last error
	for range nestRounds {
		if err := moveAll(root); err != nil {
			return "", err
		}
		if last = cgroupfs.Enable(root, missing(have, on)...); last == nil {
			return fmt.Sprintf("processes moved, %d controllers enabled", len(have)), nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(nestPause):
		}
	}
	return "", fmt.Errorf("enable cgroup controllers in %d rounds: %w: processes keep entering the sandbox's root group", nestRounds, last)
}

func moveAll(root string) error {
	pids, err := cgroupfs.PIDs(root)
	if err != nil {
		return fmt.Errorf("list processes of the root cgroup: %w", err)
	}
	for _, pid := range pids {
		err := cgroupfs.Move(filepath.Join(root, "init"), pid)
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) { // gone, or a kernel thread
			return fmt.Errorf("move process %d out of the root cgroup: %w", pid, err)
		}
	}
	return nil
}

func missing(want, have []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(have, w) })
}

// checkPrivileges turns common errors in starting a box into an error that names the missing option.
func (s system) checkPrivileges() error {
	b, err := os.ReadFile(s.path("/proc/self/status"))
	if err != nil {
		return fmt.Errorf("read own privileges: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		if k != "CapEff" {
			continue
		}
		caps, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		if err != nil {
			return fmt.Errorf("read own capabilities: %w", err)
		}
		// SYS_PTRACE: the OCI runtime opens the namespaces of a process in another user namespace.
		for _, c := range []struct {
			bit  uint
			name string
		}{
			{unix.CAP_SYS_ADMIN, "SYS_ADMIN"},
			{unix.CAP_NET_ADMIN, "NET_ADMIN"},
			{unix.CAP_MKNOD, "MKNOD"},
			{unix.CAP_SETUID, "SETUID"},
			{unix.CAP_SYS_PTRACE, "SYS_PTRACE"},
		} {
			if caps&(1<<c.bit) == 0 {
				errs = append(errs, fmt.Errorf("the sandbox lacks a capability that its own engine needs: start it with --cap-add %s", c.name))
			}
		}
	}
	// runc gives every container a session keyring, which the engine's default seccomp profile forbids.
	if _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		errs = append(errs, errors.New(
			"the sandbox's seccomp profile forbids keyctl, so inner containers cannot start: start it with --security-opt seccomp=unconfined",
		))
	}
	return errors.Join(errs...)
}
