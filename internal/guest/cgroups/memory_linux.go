package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FreeMemory returns how much memory the agent's side can still use, in bytes: of its limit, or of the
// machine if it has none. The kernel's caches count as free.
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
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}
	return int64(counterIn(string(b), "MemAvailable:")) << 10, nil
}

// freeMemory returns how much of its limit a group has left.
func (h hierarchy) freeMemory(limit int64) (int64, error) {
	usage, kept := "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}
	if h.unified {
		usage, kept = "memory.current", []string{"inactive_file", "active_file", "slab_reclaimable"}
	}
	b, err := os.ReadFile(filepath.Join(h.path, usage))
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}
	for _, name := range kept {
		used -= int64(counter(filepath.Join(h.path, "memory.stat"), name))
	}
	return max(limit-max(used, 0), 0), nil
}
