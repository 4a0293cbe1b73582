package jailshim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// watchEvery is between two looks at the memory of a sandbox without a control group: what one process can take in
// between is bounded by a limit of its own.
const watchEvery = 200 * time.Millisecond

// watch kills the largest process below pid when all have more than limit bytes, until done. Each kill is a byte into kills before.
func watch(pid int, limit int64, kills *os.File, done <-chan struct{}) {
	for range proc.Ticks(done, watchEvery) {
		all := proc.Descendants(proc.Processes(), pid)
		var sum, most int64
		victim := 0
		for _, r := range all {
			n := ownMemory(r.PID)
			sum += n
			if n > most {
				most, victim = n, r.PID
			}
		}
		if sum > limit && victim > 0 {
			_, _ = kills.Write([]byte{1})
			_ = syscall.Kill(victim, syscall.SIGKILL)
		}
	}
}

// ownMemory is what a process has that is no file's, in bytes; 0 of one that is gone.
func ownMemory(pid int) (n int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "RssAnon:" || f[0] == "RssShmem:" || f[0] == "VmSwap:") {
			kb, _ := strconv.ParseInt(f[1], 10, 64) // the kernel's own number
			n += kb << 10
		}
	}
	return n
}
