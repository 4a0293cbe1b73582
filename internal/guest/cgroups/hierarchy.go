package cgroups

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// hierarchy is a mounted tree of control groups: one per controller in version 1, one for all in version 2.
type hierarchy struct {
	path        string
	unified     bool
	readOnly    bool
	controllers []string // names as in the mount options; version 1 only
}

// has reports whether the hierarchy has a controller.
func (h hierarchy) has(controller string) bool {
	if h.unified {
		b, err := os.ReadFile(h.path + "/cgroup.controllers")
		return err == nil && slices.Contains(strings.Fields(string(b)), controller)
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
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return parse(b), nil
}

func parse(mountinfo []byte) []hierarchy {
	var found []hierarchy
	for line := range bytes.Lines(mountinfo) {
		f := strings.Fields(string(line))
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+4 || f[4] != Root && !strings.HasPrefix(f[4], Root+"/") {
			continue
		}
		h := hierarchy{path: f[4], readOnly: slices.Contains(strings.Split(f[5], ","), "ro")}
		switch f[dash+1] {
		case "cgroup2":
			h.unified = true
		case "cgroup":
			for o := range strings.SplitSeq(f[dash+3], ",") {
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
