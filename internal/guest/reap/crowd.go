package reap

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Crowd finds a sandbox that is full of what nobody asked for: commands that have ended left so many processes behind that no other can begin. A fork bomb
// does that whose first process ends.
type Crowd struct {
	// Dirs are folders of control groups, one of which counts processes; where none does, the limit of the user counts.
	Dirs []string
	// Of is whose processes count where this process has not adopted what commands leave (Adopt); nil means nobody's.
	Of *uint32
}

const (
	// crowdRounds and crowdLooks are strayRounds and strayLooks of Disperse.
	crowdRounds = 500
	crowdLooks  = 5
	// nearly is how much of the limit is full: a command needs some threads to begin.
	nearly = 0.9
)

// Full reports whether there is hardly a process free, and most of them were left behind.
func (c Crowd) Full() bool {
	now, most, ok := c.count()
	return ok && float64(now) >= nearly*float64(most) && int64(len(c.abandoned())) > most/2
}

// Crowded reports whether there is hardly a process free, whoever has them.
func (c Crowd) Crowded() bool {
	now, most, ok := c.count()
	return ok && float64(now) >= nearly*float64(most)
}

// count is how many processes and threads there are, and may be.
func (c Crowd) count() (now, most int64, ok bool) {
	for _, dir := range c.Dirs {
		now, nerr := number(filepath.Join(dir, "pids.current"))
		most, merr := number(filepath.Join(dir, "pids.max"))
		if nerr == nil && merr == nil {
			return now, most, true
		}
	}
	// Without a control group a jail's limit is that of its user.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Cur > mostByLimit {
		return 0, 0, false
	}
	for _, r := range proc.Relatives() {
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(r.PID) + "/task")
		if err == nil {
			now += int64(len(threads))
		}
	}
	return now, int64(limit.Cur), true
}

// mostByLimit is above any limit that somebody has set for a sandbox: a machine's own is not looked at.
const mostByLimit = 1 << 16

func number(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Disperse kills what commands that have ended have left behind.
func (c Crowd) Disperse() {
	for round, none := 0, 0; round < crowdRounds && none < crowdLooks; round++ {
		all := c.abandoned()
		for _, r := range all {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		none++
		if len(all) > 0 {
			none = 0
		}
		time.Sleep(lookPause)
		if kin.Load() != nil {
			bury(proc.Relatives())
		}
	}
}

// abandoned are the processes that no supervisor watches.
func (c Crowd) abandoned() (all []proc.Relative) {
	there := proc.Relatives()
	if kin.Load() != nil {
		watched := map[int]bool{}
		children := proc.Children()
		for _, pid := range children {
			watched[pid] = true
		}
		for _, r := range proc.Below(there, children...) {
			watched[r.PID] = true
		}
		for _, r := range proc.Below(there, os.Getpid()) {
			if !watched[r.PID] {
				all = append(all, r)
			}
		}
		return all
	}
	if c.Of == nil {
		return nil
	}
	// The box's first process has adopted them.
	var roots []int
	for _, r := range there {
		if r.Parent == 1 && r.Alive && ownedBy(r.PID, *c.Of) {
			roots = append(roots, r.PID)
			all = append(all, r)
		}
	}
	return append(all, proc.Below(there, roots...)...)
}

func ownedBy(pid int, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid == uid
}
