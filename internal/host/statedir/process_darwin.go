package statedir

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// zombie is the state of a dead process whose parent has not waited for it (SZOMB of sys/proc.h).
const zombie = 5

// startTime is the time of day at which the process began; empty if it is dead.
func startTime(pid int) string {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return ""
	}
	return fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec)
}

// bootID is not needed: start times are times of day.
func bootID() string { return "" }
