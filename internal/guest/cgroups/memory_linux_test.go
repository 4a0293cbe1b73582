package cgroups

import (
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Git as the agent's user gets a part of the reserve, so that boot keeps the rest of it.
func TestLimits(t *testing.T) {
	t.Parallel()
	for memory, want := range map[int64][2]string{
		8 << 30: {"8053063680", "268435456"}, // less 512 MiB, half of them
		1 << 30: {"805306368", "134217728"},  // less a quarter
	} {
		v1 := hierarchy{path: t.TempDir(), controllers: []string{"memory"}}
		for _, g := range all {
			put(t, dir(v1.path, g), map[string]string{"memory.limit_in_bytes": ""})
		}
		if err := v1.limit(Limits{Reserve: 512 << 20}, memory); err != nil {
			t.Fatal(err)
		}
		for i, g := range []string{Work, Git} {
			if b, err := os.ReadFile(filepath.Join(dir(v1.path, g), "memory.limit_in_bytes")); err != nil || string(b) != want[i] {
				t.Errorf("%s of %d: %q, want %s (%v)", g, memory, b, want[i], err)
			}
		}
	}
}

func TestFreeMemory(t *testing.T) {
	t.Parallel()
	v1, v2 := t.TempDir(), t.TempDir()
	put(t, v1, map[string]string{
		"work/memory.limit_in_bytes": "1000\n", "work/memory.usage_in_bytes": "700\n",
		"work/memory.stat": "inactive_file 9\ntotal_inactive_file 100\ntotal_active_file 50\n",
	})
	put(t, v2, map[string]string{
		"cgroup.controllers": "memory pids\n", "work/cgroup.controllers": "memory pids\n",
		"work/memory.max": "1000\n", "work/memory.current": "700\n", "work/memory.stat": "inactive_file 100\nactive_file 50\nslab_reclaimable 50\nshmem 500\n",
	})
	for _, c := range []struct {
		h    hierarchy
		want int64
	}{{hierarchy{path: v1, controllers: []string{"memory"}}, 450}, {hierarchy{path: v2, unified: true}, 500}} {
		g := &Groups{hierarchies: []hierarchy{c.h}}
		if got, err := g.FreeMemory(); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v, want %d", c.h, got, err, c.want)
		}
	}
	var none *Groups
	if got, err := none.FreeMemory(); err != nil || got < 1<<20 {
		t.Errorf("of the machine: %d, %v", got, err)
	}
}
