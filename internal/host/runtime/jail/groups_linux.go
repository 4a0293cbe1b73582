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

// controllers limit a sandbox and count its use of processors.
var controllers = []string{"memory", "pids", "cpu", "cpuacct"}

// cgroupParents are the writable parents of a sandbox's cgroups, by controller.
type cgroupParents map[string]parent

type parent struct {
	dir     string
	unified bool
}

// findParents returns the cgroups in which this user can create cgroups.
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
			// In version 2, a group has only the controllers that its parent enables.
			handed, _ := cgroupfs.Words(p.dir, "cgroup.subtree_control") // empty if unreadable
			if !slices.Contains(handed, c) && cgroupfs.Enable(p.dir, c) != nil {
				continue
			}
		}
		found[c] = p
	}
	return found
}

// parentsIn returns this process's cgroups: in version 1 its own, in version 2 the root for root, and for other users the parent
// of their own, since a group there has either processes or subgroups with controllers. own has the group of each controller.
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
			for _, c := range controllers[:3] { // the last exists only in version 1
				if _, ok := found[c]; !ok {
					found[c] = parent{dir: dir, unified: true}
				}
			}
		}
	}
	return found
}

// groups returns the cgroups of a sandbox, and their paths in it.
func (p cgroupParents) groups(sandboxDir string, s startConfig) (all []jailshim.Group, inside []string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(sandboxDir)) // never fails
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
