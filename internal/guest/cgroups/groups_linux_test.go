package cgroups

import (
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// A process counts by where it is itself: boot, of which a thread is in the agent's group while it starts a
// child there, is never ended with it.
func TestIn(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{
		"8:pids:/work/agent\n0::/\n":           true,
		"8:pids:/work\n":                       true,
		"8:pids:/work/containers/abc\n":        true,
		"0::/work/agent\n":                     true,
		"8:pids:/boot\n4:memory:/boot\n0::/\n": false,
		"8:pids:/workers\n":                    false,
		"":                                     false,
	} {
		if got := in(file, Work); got != want {
			t.Errorf("%q: %v", file, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const table = "90 89 0:46 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"91 90 0:29 / /sys/fs/cgroup/cpu ro,nosuid - cgroup cgroup rw,cpu,cpuacct\n" +
		"92 90 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
		"93 90 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
		"94 90 0:29 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n" +
		"95 90 0:32 / /elsewhere rw - cgroup cgroup rw,pids\n"
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := below(mounts)
	if len(got) != 3 || got[0].readOnly || !got[0].has("cpuacct") || got[1].mountData() != "none,name=systemd" || !got[2].unified {
		t.Errorf("%+v", got)
	}
}
