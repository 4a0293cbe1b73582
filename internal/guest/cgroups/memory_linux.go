package cgroups

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
)

// FreeMemory returns the memory that the agent's side can still use, in bytes. The kernel's caches count as free.
func (g *Groups) FreeMemory() (int64, error) {
	if g != nil {
		for _, h := range g.hierarchies {
			if !h.has("memory") {
				continue
			}
			own := h
			own.path = dir(h.path, Work)
			if limit := memoryLimit(own); limit > 0 {
				return own.freeMemory(limit)
			}
		}
	}
	kib, ok := cgroupfs.Counter("/proc/meminfo", "MemAvailable:")
	if !ok {
		return 0, errors.New("read the free memory: /proc/meminfo has no MemAvailable")
	}
	return kib << 10, nil
}

// freeMemory returns how much of its limit a group has left.
func (h hierarchy) freeMemory(limit int64) (int64, error) {
	usage, kept := "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}
	if h.unified {
		usage, kept = "memory.current", []string{"inactive_file", "active_file", "slab_reclaimable"}
	}
	used, err := cgroupfs.Number(h.path, usage)
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}
	for _, name := range kept {
		n, _ := cgroupfs.Counter(filepath.Join(h.path, "memory.stat"), name)
		used -= n
	}
	return max(limit-max(used, 0), 0), nil
}
