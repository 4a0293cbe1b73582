package proc

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds and pause of EndChildren. Each round kills all existing processes; at most three were needed.
const (
	killRounds = 500
	killPause  = 2 * time.Millisecond
)

// Adopt makes this process the parent of its orphaned descendants.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Childless reports whether this process has no child, alive or dead.
func Childless() bool {
	var info unix.Siginfo
	return errors.Is(unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// EndChildren kills all descendants of this adopting process; false if some remain. bury reaps the children that no
// other code waits for.
func EndChildren(bury func()) bool {
	for range killRounds {
		if Childless() {
			return true
		}
		for _, r := range Descendants(Processes(), os.Getpid()) {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		bury()
		time.Sleep(killPause)
		bury()
	}
	return Childless()
}
