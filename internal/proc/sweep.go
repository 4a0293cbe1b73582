package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Rounds and pause of a Sweep: a process that forks as fast as it is killed
// loses well within them, because every round kills all that exist.
const (
	sweepRounds = 50
	sweepPause  = 10 * time.Millisecond
)

// Sweep kills every process of uid (real or effective) but the caller and those
// to spare (nil means none), until none is left or the rounds are used up, and reports how
// many withstood. Killing a command's group is not enough: tool shells of agents open
// sessions of their own.
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

// OfUser lists the processes of uid in the caller's PID namespace that are not
// zombies, without the caller. Processes of inner containers share the uid (root
// in them is the sandbox user) but not the namespace: they are the inner engine's to stop.
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
			continue // gone meanwhile
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
