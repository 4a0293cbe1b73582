package runner

import (
	"os"
	"strconv"
	"strings"
)

// oomFiles are where the kernel counts what it killed for lack of memory in our
// cgroup: version 2, then version 1.
func oomFiles() []string {
	return []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}
}

// oomKills reads the counter; 0 when there is none.
func oomKills(files []string) int {
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, err := strconv.Atoi(strings.TrimSpace(v))
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}
