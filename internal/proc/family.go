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

// children are those that this process has started and that have not been waited for.
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

// Children are the processes that Start has started and that have not been waited for. Whatever else has this process
// for a parent, it has adopted.
func Children() []int {
	own.mu.Lock()
	defer own.mu.Unlock()
	return slices.Collect(maps.Keys(own.pids))
}

// Relative is a process as /proc shows it.
type Relative struct {
	PID, Parent int
	// Start is when it began, in ticks since the machine's start: with the PID it names one process for good.
	Start uint64
	Alive bool // or dead and not yet waited for
}

// Relatives are all processes that /proc shows. One that begins while it looks may be missing.
func Relatives() []Relative {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []Relative
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

// Below are those of all that live and descend from any of the ancestors.
func Below(all []Relative, ancestors ...int) []Relative {
	below := map[int][]Relative{}
	for _, r := range all {
		if r.Alive {
			below[r.Parent] = append(below[r.Parent], r)
		}
	}
	var found []Relative
	for len(ancestors) > 0 {
		children := below[ancestors[0]]
		delete(below, ancestors[0]) // an ancestor of another is looked at once
		ancestors = ancestors[1:]
		for _, c := range children {
			ancestors = append(ancestors, c.PID)
		}
		found = append(found, children...)
	}
	return found
}

// readStat reads a process's stat: "pid (name) state parent …", where the name can be whatever, parentheses too. A process
// whose first thread has ended looks like a dead one and is not, as long as it has others.
func readStat(stat string) (Relative, bool) {
	const state, parentAt, threadsAt, startAt = 0, 1, 17, 19
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) <= startAt {
		return Relative{}, false
	}
	parent, perr := strconv.Atoi(f[parentAt])
	threads, terr := strconv.Atoi(f[threadsAt])
	start, serr := strconv.ParseUint(f[startAt], 10, 64)
	if perr != nil || terr != nil || serr != nil {
		return Relative{}, false
	}
	return Relative{Parent: parent, Start: start, Alive: f[state] != "X" && (f[state] != "Z" || threads > 1)}, true
}
