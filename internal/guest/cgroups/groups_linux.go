package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Groups are the box's groups, once PID 1 has divided them. Its methods are safe for concurrent use.
type Groups struct{ hierarchies []hierarchy }

// Open finds the groups; nil, nil if they are not divided.
func Open() (*Groups, error) {
	hs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	if len(hs) == 0 {
		return nil, nil
	}
	for _, h := range hs {
		if _, err := os.Stat(dir(h.path, Agent)); errors.Is(err, os.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	return &Groups{hs}, nil
}

// Of returns the group in which a child can start; nil, for this process's groups, if the groups are not divided.
func (g *Groups) Of(group string) *proc.Cgroup {
	if g == nil {
		return nil
	}
	c := &proc.Cgroup{}
	for _, h := range g.hierarchies {
		if h.unified {
			c.Unified = dir(h.path, group)
		} else {
			c.V1 = append(c.V1, dir(h.path, group))
		}
	}
	return c
}

// OOMKills counts processes killed on the agent's side for lack of memory; in the whole box if the groups are not divided.
func (g *Groups) OOMKills() int {
	group, hs := Work, []hierarchy(nil)
	if g != nil {
		hs = g.hierarchies
	} else if found, err := hierarchies(); err == nil {
		group, hs = "", found
	}
	n := 0
	for _, h := range hs {
		if !h.has("memory") {
			continue
		}
		if h.unified {
			kills, _ := cgroupfs.Counter(filepath.Join(dir(h.path, group), "memory.events"), "oom_kill") // includes its children
			n += int(kills)
			continue
		}
		_ = filepath.WalkDir(dir(h.path, group), func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Name() == "memory.oom_control" {
				kills, _ := cgroupfs.Counter(path, "oom_kill")
				n += int(kills)
			}
			return nil // a container's group may disappear meanwhile
		})
	}
	return n
}

// killRounds and killPause bound Kill; further rounds are for processes that are just being created.
const (
	killRounds = 200
	killPause  = 10 * time.Millisecond
)

// Kill makes the kernel end every process of a group and of the groups below it, which cannot fork meanwhile. It
// returns an error if some remain.
func (g *Groups) Kill(group string) (err error) {
	if g == nil {
		return errors.New("the sandbox's control groups are not divided")
	}
	for _, h := range g.hierarchies {
		if !h.has("pids") {
			continue
		}
		at := dir(h.path, group)
		before, rerr := cgroupfs.Words(at, "pids.max")
		if rerr != nil {
			continue
		}
		if err := cgroupfs.Write(at, "pids.max", "0"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cgroupfs.Write(at, "pids.max", strings.Join(before, ""))) }()
		break
	}
	left := 0
	for range killRounds {
		pids := g.members(group)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if left = len(pids); left == 0 {
			return nil
		}
		time.Sleep(killPause)
	}
	return fmt.Errorf("%d processes of the group %s could not be killed", left, group)
}

// member reports whether a process itself is in a group or below it, not only one of its threads.
func member(pid int, group string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && in(string(b), group)
}

// in reports the same for the content of a file /proc/<pid>/cgroup.
func in(cgroup, group string) bool {
	for _, p := range cgroupfs.Paths(cgroup) {
		if p == "/"+group || strings.HasPrefix(p, "/"+group+"/") {
			return true
		}
	}
	return false
}

// members returns the processes of a group and of the groups below it.
func (g *Groups) members(group string) []int {
	var pids []int
	for _, h := range g.hierarchies {
		if !h.has("pids") && !h.unified {
			continue
		}
		_ = filepath.WalkDir(dir(h.path, group), func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil
			}
			all, _ := cgroupfs.PIDs(path) // the group may disappear meanwhile
			for _, pid := range all {
				if pid > 1 && !slices.Contains(pids, pid) && member(pid, group) {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}
