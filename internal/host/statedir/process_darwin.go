package statedir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of sys/proc.h: a dead process that its parent has not waited for.
const zombie = 5

// startTime is the process's start, or "" if it is dead.
func startTime(pid int) string {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return ""
	}
	return fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec)
}

// bootID is unnecessary, because start times are absolute.
func bootID() string { return "" }
