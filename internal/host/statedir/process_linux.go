package statedir

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// signal never reaches another process, even if this one ends now and its id is reused.
func (p *Process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Kill(p.PID, sig) // a kernel before 5.3, or a seccomp filter
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// If it is this process now, the descriptor is of this process.
	if !p.Alive() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// startTime is field 22 of /proc/<pid>/stat, or "" for a missing process or a zombie.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command name is in parentheses and may contain anything.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// bootID identifies the machine's boot, from which start times count.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, the start time must do
	return strings.TrimSpace(string(b))
}
