package proc

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds and pause of EndChildren: each round kills all that exist, so that what forks as fast as it dies loses
// within a few. By hand, three were needed at most.
const (
	killRounds = 500
	killPause  = 2 * time.Millisecond
)

// Adopt makes this process the parent of whatever loses its own below it.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Childless reports whether this process has no child, alive or dead: of one that adopts, whether nothing is below it.
func Childless() bool {
	var info unix.Siginfo
	return errors.Is(unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// EndChildren kills all that is below this process, which adopts, until it is childless; false if it is not when the
// rounds are used up. bury takes the exit codes of those that no other code waits for.
func EndChildren(bury func()) bool {
	for range killRounds {
		if Childless() {
			return true
		}
		for _, r := range Below(Relatives(), os.Getpid()) {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		bury()
		time.Sleep(killPause)
		bury()
	}
	return Childless()
}
