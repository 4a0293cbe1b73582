package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Rounds and pause of a Sweep. Each round kills all existing processes.
const (
	sweepRounds = 50
	sweepPause  = 10 * time.Millisecond
)

// Sweep kills all processes of uid (real or effective) except the caller and the spared ones (nil spares none), in
// rounds, and returns how many survived. Shells of agents' tools open sessions of their own, so killing a group is not
// enough.
func Sweep(uid uint32, spare func(pid int) bool) (left int) {
	for range sweepRounds {
		left = 0
		for _, pid := range OfUser(uid) {
			if spare == nil || !spare(pid) {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			return 0
		}
		time.Sleep(sweepPause)
	}
	return left
}

// OfUser lists the processes of uid in the caller's PID namespace that are not zombies, without the caller. Inner
// containers share the uid but not the namespace.
func OfUser(uid uint32) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil {
			continue // it has ended meanwhile
		}
		if ns, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && ns != own {
			continue
		}
		if owns(string(status), uid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func owns(status string, uid uint32) bool {
	want := strconv.FormatUint(uint64(uid), 10)
	mine := false
	for line := range strings.Lines(status) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && f[0] == "State:" && f[1] == "Z":
			return false
		case len(f) > 2 && f[0] == "Uid:":
			mine = f[1] == want || f[2] == want
		}
	}
	return mine
}
