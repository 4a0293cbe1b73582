package cgroups

import (
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
)

// hierarchy is a mounted tree of control groups: one per controller in version 1, one for all in version 2.
type hierarchy struct {
	path        string
	unified     bool
	readOnly    bool
	controllers []string // names as in the mount options; version 1 only
}

func (h hierarchy) has(controller string) bool {
	if h.unified {
		have, err := cgroupfs.Words(h.path, "cgroup.controllers")
		return err == nil && slices.Contains(have, controller)
	}
	return slices.Contains(h.controllers, controller)
}

// mountData returns the options for mounting the hierarchy again.
func (h hierarchy) mountData() string {
	data := strings.Join(h.controllers, ",")
	if strings.Contains(data, "name=") {
		data = "none," + data
	}
	return data
}

// fsType returns the hierarchy's file system type.
func (h hierarchy) fsType() string {
	if h.unified {
		return "cgroup2"
	}
	return "cgroup"
}

// hierarchies returns those mounted below Root.
func hierarchies() ([]hierarchy, error) {
	all, err := mountinfo.GetMounts(nil)
	return below(all), err
}

func below(mounts []*mountinfo.Info) (found []hierarchy) {
	for _, m := range mounts {
		if m.Mountpoint != Root && !strings.HasPrefix(m.Mountpoint, Root+"/") {
			continue
		}
		h := hierarchy{path: m.Mountpoint, readOnly: slices.Contains(strings.Split(m.Options, ","), "ro")}
		switch m.FSType {
		case "cgroup2":
			h.unified = true
		case "cgroup":
			for o := range strings.SplitSeq(m.VFSOptions, ",") {
				// A word that is not an option of the file system is a controller, or the hierarchy's name.
				switch o {
				case "rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "favordynmods":
				default:
					if !strings.HasPrefix(o, "release_agent=") {
						h.controllers = append(h.controllers, o)
					}
				}
			}
		default:
			continue
		}
		if i := slices.IndexFunc(found, func(o hierarchy) bool { return o.path == h.path }); i >= 0 {
			found[i] = h // mounted over the previous one
			continue
		}
		found = append(found, h)
	}
	return found
}
