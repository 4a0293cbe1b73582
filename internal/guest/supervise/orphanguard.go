package supervise

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// OrphanGuard detects a sandbox in which ended commands have left so many processes that no new one can start.
type OrphanGuard struct {
	// Dirs are directories of control groups that may count processes; otherwise the user's limit counts.
	Dirs []string
	// UID is the user whose processes count if this process has not adopted orphans (Adopt); nil for none.
	UID *uint32
}

// nearly is the share of the limit that counts as full: a command needs some threads to start.
const nearly = 0.9

// Exhausted reports whether hardly any process slot is free, and most are used by abandoned processes.
func (g OrphanGuard) Exhausted() bool {
	now, most, ok := g.count()
	return ok && float64(now) >= nearly*float64(most) && int64(len(g.orphans())) > most/2
}

// Crowded reports whether hardly any process slot is free.
func (g OrphanGuard) Crowded() bool {
	now, most, ok := g.count()
	return ok && float64(now) >= nearly*float64(most)
}

// count returns the current number of processes and threads, and the limit.
func (g OrphanGuard) count() (now, most int64, ok bool) {
	for _, dir := range g.Dirs {
		now, nerr := cgroupfs.Number(dir, "pids.current")
		most, merr := cgroupfs.Number(dir, "pids.max")
		if nerr == nil && merr == nil {
			return now, most, true
		}
	}
	// Without a control group a jail's limit is that of its user.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Cur > mostByLimit {
		return 0, 0, false
	}
	for _, r := range proc.Processes() {
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(r.PID) + "/task")
		if err == nil {
			now += int64(len(threads))
		}
	}
	return now, int64(limit.Cur), true
}

// mostByLimit is above any limit that is set for a sandbox: a machine's own limit is ignored.
const mostByLimit = 1 << 16

// KillOrphans kills the processes that ended commands have left.
func (g OrphanGuard) KillOrphans() { killAll(g.orphans) }

// orphans returns the processes that no supervisor watches.
func (g OrphanGuard) orphans() (all []proc.Info) {
	there := proc.Processes()
	if current.Load() != nil {
		watched := map[int]bool{}
		children := proc.Children()
		for _, pid := range children {
			watched[pid] = true
		}
		for _, r := range proc.Descendants(there, children...) {
			watched[r.PID] = true
		}
		for _, r := range proc.Descendants(there, os.Getpid()) {
			if !watched[r.PID] {
				all = append(all, r)
			}
		}
		return all
	}
	if g.UID == nil {
		return nil
	}
	// The box's first process has adopted them.
	var roots []int
	for _, r := range there {
		if r.Parent == 1 && r.Alive && ownedBy(r.PID, *g.UID) {
			roots = append(roots, r.PID)
			all = append(all, r)
		}
	}
	return append(all, proc.Descendants(there, roots...)...)
}

func ownedBy(pid int, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid == uid
}
