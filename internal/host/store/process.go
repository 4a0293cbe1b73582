package store

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessOf describes the process with that id.
func ProcessOf(pid int) *Process { return &Process{PID: pid, Start: startTime(pid)} }

// Alive reports whether that very process still runs.
func (p *Process) Alive() bool {
	if p == nil || p.PID <= 1 || unix.Kill(p.PID, 0) != nil {
		return false
	}
	return startTime(p.PID) == p.Start
}

// startTime is field 22 of /proc/<pid>/stat, empty where there is no such file
// (then the process id alone has to do) and for a zombie, which is dead.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command name is in parentheses and may hold anything.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 || f[0] == "Z" {
		return "gone"
	}
	return f[19]
}
