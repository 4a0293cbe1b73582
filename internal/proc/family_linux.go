package proc

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds and pauses of EndChildren: each round kills all that exist, so that what forks as fast as it dies loses within a few. By hand, three were needed at
// most. What the kernel ends by itself is gone within the first pause.
const (
	killRounds     = 500
	firstKillPause = 200 * time.Microsecond
	killPause      = 2 * time.Millisecond
)

// Adopt makes this process the parent of whatever loses its own below it.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Childless reports whether this process has no child, alive or dead: of one that adopts, whether nothing is below it.
func Childless() bool {
	var info unix.Siginfo
	return errors.Is(unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// EndChildren kills all that is below this process, which adopts, until it is childless; false if it is not when the rounds are used up. bury takes the exit
// codes of those that nobody else waits for.
func EndChildren(bury func()) bool {
	pause := firstKillPause
	for round := range killRounds {
		if Childless() {
			return true
		}
		if round > 0 {
			for _, r := range Below(Relatives(), os.Getpid()) {
				_ = syscall.Kill(r.PID, syscall.SIGKILL)
			}
		}
		bury()
		time.Sleep(pause)
		bury()
		pause = min(2*pause, killPause)
	}
	return Childless()
}
