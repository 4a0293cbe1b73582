package proc

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// children are started processes that have not been waited for.
type children struct {
	mu   sync.Mutex
	pids map[int]bool
}

var own = children{pids: map[int]bool{}}

// add starts a child; it is registered before any other code can see it.
func (c *children) add(start func() error, cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := start(); err != nil {
		return err
	}
	c.pids[cmd.Process.Pid] = true
	return nil
}

func (c *children) remove(cmd *exec.Cmd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, cmd.Process.Pid)
}

// Children returns the pids of started processes that have not been waited for; other children are adopted.
func Children() []int {
	own.mu.Lock()
	defer own.mu.Unlock()
	return slices.Collect(maps.Keys(own.pids))
}

// Info describes a process in /proc.
type Info struct {
	PID, Parent int
	// Start is the start time in ticks since the machine's start. With the PID it identifies the process.
	Start uint64
	Alive bool // false for a zombie
}

// Processes lists all processes in /proc. A process that starts meanwhile may be missing.
func Processes() []Info {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []Info
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		if r, ok := readStat(string(b)); ok {
			r.PID = pid
			all = append(all, r)
		}
	}
	return all
}

// Descendants returns the live descendants of the ancestors.
func Descendants(all []Info, ancestors ...int) []Info {
	below := map[int][]Info{}
	for _, r := range all {
		if r.Alive {
			below[r.Parent] = append(below[r.Parent], r)
		}
	}
	var found []Info
	for len(ancestors) > 0 {
		children := below[ancestors[0]]
		delete(below, ancestors[0]) // in case one ancestor descends from another
		ancestors = ancestors[1:]
		for _, c := range children {
			ancestors = append(ancestors, c.PID)
		}
		found = append(found, children...)
	}
	return found
}

// readStat reads a process's stat: "pid (name) state parent …". A process whose first thread has ended looks dead, but
// is alive while it has other threads.
func readStat(stat string) (Info, bool) {
	const state, parentAt, threadsAt, startAt = 0, 1, 17, 19
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) <= startAt {
		return Info{}, false
	}
	parent, perr := strconv.Atoi(f[parentAt])
	threads, terr := strconv.Atoi(f[threadsAt])
	start, serr := strconv.ParseUint(f[startAt], 10, 64)
	if perr != nil || terr != nil || serr != nil {
		return Info{}, false
	}
	return Info{Parent: parent, Start: start, Alive: f[state] != "X" && (f[state] != "Z" || threads > 1)}, true
}
