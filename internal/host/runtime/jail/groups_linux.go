package jail

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"
	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
)

// controllers are what limits a sandbox, and what counts its use of processors.
var controllers = []string{"memory", "pids", "cpu", "cpuacct"}

// cgroupParents are the writable parent cgroups, by controller.
type cgroupParents map[string]parent

type parent struct {
	dir     string
	unified bool
}

// findParents looks for control groups below which this user can make others.
func findParents() cgroupParents {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	found := cgroupParents{}
	for c, p := range parentsIn(mounts, cgroupfs.Paths(string(own))) {
		if unix.Access(p.dir, unix.W_OK) != nil {
			continue
		}
		if p.unified {
			// Of version 2, a group has controllers only that its parent hands on.
			handed, _ := cgroupfs.Words(p.dir, "cgroup.subtree_control") // without, none
			if !slices.Contains(handed, c) && cgroupfs.Enable(p.dir, c) != nil {
				continue
			}
		}
		found[c] = p
	}
	return found
}

// parentsIn returns where this process's groups are: of version 1 its own, of version 2 root's at the top, and of others the one above
// their own, since a group there has either processes or groups with controllers. own has the group of each controller.
func parentsIn(mounts []*mountinfo.Info, own map[string]string) cgroupParents {
	found := cgroupParents{}
	for _, m := range mounts {
		below := func(path string) string {
			return filepath.Join(m.Mountpoint, strings.TrimPrefix(path, strings.TrimSuffix(m.Root, "/")))
		}
		switch m.FSType {
		case "cgroup":
			for c := range strings.SplitSeq(m.VFSOptions, ",") {
				if slices.Contains(controllers, c) {
					found[c] = parent{dir: below(own[c])}
				}
			}
		case "cgroup2":
			dir := m.Mountpoint
			if os.Geteuid() != 0 {
				dir = filepath.Dir(below(own[""]))
			}
			for _, c := range controllers[:3] { // the last is of version 1
				if _, ok := found[c]; !ok {
					found[c] = parent{dir: dir, unified: true}
				}
			}
		}
	}
	return found
}

// groups are those of a sandbox, and where they show in it.
func (p cgroupParents) groups(folder string, s startConfig) (all []jailshim.Group, inside []string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(folder)) // it never fails
	name := fmt.Sprintf("sandbox-agent-%x", h.Sum64())
	add := func(controller string, set func(unified bool) []jailshim.Setting) {
		at, ok := p[controller]
		if !ok {
			return
		}
		dir := filepath.Join(at.dir, name)
		i := slices.IndexFunc(all, func(g jailshim.Group) bool { return g.Dir == dir })
		if i < 0 {
			all = append(all, jailshim.Group{Dir: dir, Unified: at.unified})
			shown := "/sys/fs/cgroup"
			if !at.unified {
				shown += "/" + controller
			}
			inside = append(inside, shown)
			i = len(all) - 1
		}
		all[i].Set = append(all[i].Set, set(at.unified)...)
	}
	add("memory", func(unified bool) []jailshim.Setting {
		n := strconv.FormatInt(s.MemoryBytes, 10)
		switch {
		case s.MemoryBytes <= 0:
			return nil
		case unified:
			return []jailshim.Setting{{File: "memory.max", Value: n}, {File: "memory.swap.max", Value: "0", Optional: true}}
		}
		return []jailshim.Setting{{File: "memory.limit_in_bytes", Value: n}, {File: "memory.memsw.limit_in_bytes", Value: n, Optional: true}}
	})
	add("pids", func(bool) []jailshim.Setting {
		if s.PIDs <= 0 {
			return nil
		}
		return []jailshim.Setting{{File: "pids.max", Value: strconv.FormatInt(s.PIDs, 10)}}
	})
	add("cpu", func(unified bool) []jailshim.Setting {
		const period = 100000 // the kernel's default, in microseconds
		quota := strconv.FormatInt(int64(s.CPUs*period), 10)
		switch {
		case s.CPUs <= 0:
			return nil
		case unified:
			return []jailshim.Setting{{File: "cpu.max", Value: fmt.Sprintf("%s %d", quota, period)}}
		}
		return []jailshim.Setting{{File: "cpu.cfs_period_us", Value: strconv.Itoa(period)}, {File: "cpu.cfs_quota_us", Value: quota}}
	})
	add("cpuacct", func(bool) []jailshim.Setting { return nil })
	return all, inside
}
