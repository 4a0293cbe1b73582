package runner

import (
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// looksPerWindow: twenty looks detect a hang at most five percent late.
	looksPerWindow = 20
	// minLook bounds the interval for short windows: each look reads all of /proc.
	minLook = 100 * time.Millisecond
	// idleShare is how much of one core an idle agent may use. A waiting Claude Code uses 0.2 % to 2.5 %.
	idleShare = 0.03
	// idleBeside is the same for processes from before the agent: a database that answers its query takes most of a core.
	idleBeside = 0.25
	// User ids of the inner containers, as in /etc/subuid of the image.
	innerUIDs, innerUIDsEnd = 100000, 165534
)

// processScope distinguishes the agent's processes from the others.
type processScope struct {
	table processTable
	agent int // its pid
	// user runs the agent; nil means that the agent is the tree below its pid.
	user   *proc.Credential
	others *proc.ProcessSet
	own    string          // PID namespace of this program
	spaces map[string]bool // PID namespaces of containers that existed before
	// busyIdle selects processes of the agent whose CPU time does not count; nil if all count.
	busyIdle func(process) bool
}

func newProcessScope(user *proc.Credential, others *proc.ProcessSet) *processScope {
	s := &processScope{table: procTable, user: user, others: others, own: procTable.space("self"), spaces: map[string]bool{}}
	if user != nil {
		for _, p := range s.table.all() {
			s.spaces[p.space] = true
		}
	}
	return s
}

// look lists the living processes of the agent, with inner containers, and those that existed before.
func (s *processScope) look() (agent, beside []process) {
	all := s.table.all()
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	for _, p := range all {
		switch s.side(p, byPID) {
		case ofAgent:
			if s.busyIdle != nil && s.busyIdle(p) {
				p.Ticks = 0
			}
			agent = append(agent, p)
		case besideAgent:
			beside = append(beside, p)
		}
	}
	return agent, beside
}

type owner int

const (
	neither owner = iota
	ofAgent
	besideAgent
)

func (s *processScope) side(p process, byPID map[int]process) owner {
	top := s.top(p, byPID)
	switch {
	case p.Zombie:
		return neither
	case s.user == nil:
		if top == s.agent {
			return ofAgent
		}
		return neither
	case p.uid != s.user.UID && (p.uid < innerUIDs || p.uid > innerUIDsEnd):
		return neither
	case p.space != s.own && p.space != "":
		// A container. Healthchecks come and go in containers of services, so the namespace decides.
		if s.spaces[p.space] {
			return besideAgent
		}
		return ofAgent
	case top == s.agent:
		return ofAgent
	case top == os.Getpid() || top == 0:
		// Git of the runner, or its parent ended during the scan, and the next look classifies it.
		return neither
	case s.others != nil && s.others.Includes(p.pid):
		return besideAgent
	}
	return ofAgent // it went into the background
}

// top returns the first of these at or above p: the agent, this process, the first process; 0 if none.
func (s *processScope) top(p process, byPID map[int]process) int {
	for range proc.MaxAncestors {
		if p.pid == s.agent || p.pid == os.Getpid() || p.Parent <= 1 {
			return p.pid
		}
		up, ok := byPID[p.Parent]
		if !ok {
			return 0
		}
		p = up
	}
	return 0
}

// watchdog decides whether an agent hangs: during the whole window it has printed nothing, changed nothing, used no
// significant CPU time, and none of its processes started or ended. It is not safe for concurrent use.
type watchdog struct {
	window  time.Duration
	look    func() (agent, beside []process)
	heard   func() int64     // counts the agent's output
	changed func() time.Time // nil if unknown

	begun  bool
	quiet  time.Time // since when CPU time has been the only sign of life
	last   time.Time // last look
	count  int64
	change time.Time
	agents map[processID]int64 // ticks at the last look
	beside map[processID]int64
	spent  []spentAt
}

// processID identifies a process uniquely: pids are reused.
type processID struct {
	pid   int
	began string
}

// spentAt is the CPU time used up to a moment, in ticks.
type spentAt struct {
	at            time.Time
	agent, beside int64
}

// interval returns how often to call hung.
func (w *watchdog) interval() time.Duration { return max(w.window/looksPerWindow, minLook) }

// hung looks once and reports whether the agent hangs.
func (w *watchdog) hung(now time.Time) bool {
	agents, beside := w.look()
	used, same := w.account(&w.agents, agents)
	usedBeside, _ := w.account(&w.beside, beside)
	count, change := w.heard(), w.change
	if w.changed != nil {
		change = w.changed()
	}
	// Only a difference counts, not its sign: file times can be set.
	sign := !same || count != w.count || !change.Equal(w.change)
	// This program did not run itself: the box was paused, and the agent with it.
	sign = sign || now.Sub(w.last) > w.window/2
	w.last, w.count, w.change = now, count, change

	if !w.begun {
		w.begun, w.quiet, w.spent = true, now, []spentAt{{at: now}}
		return false
	}
	before := w.spent[len(w.spent)-1]
	w.spent = append(w.spent, spentAt{at: now, agent: before.agent + used, beside: before.beside + usedBeside})
	for len(w.spent) > 2 && !w.spent[1].at.After(now.Add(-w.window)) {
		w.spent = w.spent[1:]
	}
	if sign {
		w.quiet = now
	}
	if now.Sub(w.quiet) < w.window {
		return false
	}
	from := w.spent[0]
	ticks := now.Sub(from.at).Seconds() * clockTicks
	return float64(before.agent+used-from.agent) < idleShare*ticks && float64(before.beside+usedBeside-from.beside) < idleBeside*ticks
}

// account returns the ticks used since the last look, and whether the set of processes is unchanged.
func (w *watchdog) account(known *map[processID]int64, list []process) (used int64, same bool) {
	seen := make(map[processID]int64, len(list))
	same = len(list) == len(*known)
	for _, p := range list {
		key := processID{p.pid, p.Began}
		before, ok := (*known)[key]
		same = same && ok
		used += max(p.Ticks-before, 0)
		seen[key] = p.Ticks
	}
	*known = seen
	return used, same
}
