package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
)

// box is the group below the engine's that becomes the box's root.
const box = "box"

// Divide creates the groups, moves the calling process to Boot and hides the groups above. PID 1 calls it once, before
// it forks.
func Divide(l Limits) error {
	hs, err := hierarchies()
	if err != nil {
		return fmt.Errorf("divide control groups: %w", err)
	}
	if len(hs) == 0 {
		return errors.New("divide control groups: none are mounted at " + Root)
	}
	limit := int64(0)
	for _, h := range hs {
		if h.has("memory") {
			limit = memoryLimit(h)
		}
		if err := h.enter(); err != nil {
			return fmt.Errorf("divide control groups: %w", err)
		}
	}
	// Every thread: a child's namespace is that of the thread that forks it.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0, 0); errno != 0 {
		return fmt.Errorf("divide control groups: create a cgroup namespace: %w", errno)
	}
	for _, h := range hs {
		if err := h.renew(); err != nil {
			return fmt.Errorf("divide control groups: %w", err)
		}
		if err := h.divide(); err != nil {
			return fmt.Errorf("divide control groups: %w", err)
		}
		if err := h.limit(l, limit); err != nil {
			return fmt.Errorf("limit the agent's side: %w", err)
		}
	}
	return nil
}

// enter creates the group that becomes the root and moves this process there.
func (h hierarchy) enter() error {
	if h.readOnly {
		if err := unix.Mount("", h.path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("make %s writable: %w", h.path, err)
		}
	}
	if h.has("cpuset") && !h.unified {
		// A new group would have no CPU, and could not take any process.
		if err := cgroupfs.Write(h.path, "cgroup.clone_children", "1"); err != nil {
			return err
		}
	}
	inner := filepath.Join(h.path, box)
	if err := os.MkdirAll(inner, 0o755); err != nil {
		return err
	}
	if err := cgroupfs.Enter(inner); err != nil {
		return err
	}
	if h.unified {
		return h.handOn()
	}
	return nil
}

// renew mounts the hierarchy once more: its root is now this process's group.
func (h hierarchy) renew() error {
	if err := unix.Unmount(h.path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", h.path, err)
	}
	if err := unix.Mount(
		h.fsType(), h.path, h.fsType(), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, h.mountData(),
	); err != nil {
		return fmt.Errorf("mount %s: %w", h.path, err)
	}
	return nil
}

// divide creates the groups and moves this process to its own.
func (h hierarchy) divide() error {
	for _, g := range all {
		if err := os.MkdirAll(dir(h.path, g), 0o755); err != nil {
			return err
		}
	}
	if err := cgroupfs.Enter(dir(h.path, Boot)); err != nil {
		return err
	}
	if !h.unified {
		return nil
	}
	for _, g := range []string{"", Work} {
		if err := (hierarchy{path: dir(h.path, g), unified: true}).handOn(); err != nil {
			return err
		}
	}
	return nil
}

// handOn enables the group's controllers for its children, which have the processes in version 2.
func (h hierarchy) handOn() error {
	have, err := cgroupfs.Words(h.path, "cgroup.controllers")
	if err != nil {
		return err
	}
	return cgroupfs.Enable(h.path, have...)
}

// setting is a file of a group, with its names in version 1 and 2.
type setting struct {
	controller, group string
	v1, v2            string
	value             string
	valueV1           string // if it differs
}

// limit writes the limits of the groups. memory is the box's own limit; 0 if there is none.
func (h hierarchy) limit(l Limits, memory int64) error {
	var all []setting
	pids := func(group string, n int64) {
		all = append(all, setting{controller: "pids", group: group, v1: "pids.max", v2: "pids.max", value: strconv.FormatInt(n, 10)})
	}
	pids(Engine, enginePIDs)
	pids(Git, gitPIDs)
	if l.PIDs > 0 {
		pids(Work, l.PIDs)
	}
	if memory > 0 {
		reserve := min(l.Reserve, memory/4)
		for g, n := range map[string]int64{Work: memory - reserve, Git: reserve / gitShare} {
			all = append(
				all, setting{controller: "memory", group: g, v1: "memory.limit_in_bytes", v2: "memory.max", value: strconv.FormatInt(n, 10)},
			)
		}
	}
	for g, w := range map[string]int{Boot: bootWeight, Engine: weight, Git: weight, Work: weight} {
		// Version 1 counts 1024 where version 2 counts 100.
		all = append(
			all,
			setting{controller: "cpu", group: g, v1: "cpu.shares", v2: "cpu.weight", value: strconv.Itoa(w), valueV1: strconv.Itoa(w * 1024 / 100)},
		)
	}
	for _, s := range all {
		if !h.has(s.controller) {
			continue
		}
		name, value := s.v2, s.value
		if !h.unified {
			name = s.v1
			if s.valueV1 != "" {
				value = s.valueV1
			}
		}
		if err := cgroupfs.Write(dir(h.path, s.group), name, value); err != nil {
			return err
		}
	}
	return nil
}

// memoryLimit returns the limit of the hierarchy's own group; 0 if there is no effective one.
func memoryLimit(h hierarchy) int64 {
	name := "memory.limit_in_bytes"
	if h.unified {
		name = "memory.max"
	}
	n, err := cgroupfs.Number(h.path, name)
	if err != nil || n >= 1<<62 { // "max", or its equivalent in version 1
		return 0
	}
	return n
}
