package cgroupfs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, text := range map[string]string{"pids.max": "max\n", "pids.current": "7\n", "cgroup.procs": "0\n12\n34\n", "memory.events": "oom 3\noom_kill 2\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Number(dir, "pids.current"); err != nil || n != 7 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := Number(dir, "pids.max"); err == nil {
		t.Errorf("no limit is %d", n)
	}
	if pids, err := PIDs(dir); err != nil || !slices.Equal(pids, []int{12, 34}) {
		t.Errorf("%v, %v", pids, err)
	}
	if n, ok := Counter(filepath.Join(dir, "memory.events"), "oom_kill"); !ok || n != 2 {
		t.Errorf("%d, %v", n, ok)
	}
	if _, ok := Counter(filepath.Join(dir, "memory.events"), "oom_group_kill"); ok {
		t.Error("a counter that the file does not have")
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Enable(dir, "cpu", "pids"); err != nil {
		t.Fatal(err)
	}
	if on, err := Words(dir, "cgroup.subtree_control"); err != nil || !slices.Equal(on, []string{"+cpu", "+pids"}) {
		t.Errorf("%v, %v", on, err)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	got := Paths("4:memory:/a/b\n2:cpu,cpuacct:/c:d\n0::/e\n\n")
	if want := map[string]string{"memory": "/a/b", "cpu": "/c:d", "cpuacct": "/c:d", "": "/e"}; !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
