package runner

import (
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// These count as signs of life.
const (
	// looksPerWindow is how often one looks within the time that a hang takes:
	// twenty make it five percent late at most.
	looksPerWindow = 20
	// minLook bounds that for short windows: a look reads all of /proc.
	minLook = 100 * time.Millisecond
	// idleShare is how much of one core the agent may use and still count as
	// idle. A Claude Code that waits for an answer uses 0.2 % to 2.5 %, as the machine goes, and more in its first minute.
	idleShare = 0.03
	// idleBeside is the same for what was there before the agent: services, and
	// servers of setup. They use some all the time, a database that answers the
	// agent's query takes most of a core.
	idleBeside = 0.25
	// Users of the inner containers, as /etc/subuid of the image says.
	innerUIDs, innerUIDsEnd = 100000, 165534
)

// scene tells the processes of the agent from those beside it.
type scene struct {
	table processTable
	agent int // its pid
	// user is whom the agent runs as; nil means the agent is the tree below its pid.
	user   *proc.Credential
	others *proc.Crowd
	own    string          // our PID namespace
	spaces map[string]bool // PID namespaces of the containers that were there before
	// restless are processes of the agent whose CPU time does not count; nil means all count.
	restless func(process) bool
}

func newScene(user *proc.Credential, others *proc.Crowd) *scene {
	s := &scene{table: procTable, user: user, others: others, own: procTable.space("self"), spaces: map[string]bool{}}
	if user != nil {
		for _, p := range s.table.all() {
			s.spaces[p.space] = true
		}
	}
	return s
}

// look lists the living processes of the agent, inner containers that it started
// among them, and of what was there before.
func (s *scene) look() (agent, beside []process) {
	all := s.table.all()
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	for _, p := range all {
		switch s.side(p, byPID) {
		case ofAgent:
			if s.restless != nil && s.restless(p) {
				p.Ticks = 0
			}
			agent = append(agent, p)
		case besideAgent:
			beside = append(beside, p)
		}
	}
	return agent, beside
}

type side int

const (
	nobodys side = iota
	ofAgent
	besideAgent
)

func (s *scene) side(p process, byPID map[int]process) side {
	top := s.top(p, byPID)
	switch {
	case p.Zombie:
		return nobodys
	case s.user == nil:
		if top == s.agent {
			return ofAgent
		}
		return nobodys
	case p.uid != s.user.UID && (p.uid < innerUIDs || p.uid > innerUIDsEnd):
		return nobodys
	case p.space != s.own && p.space != "":
		// A container: its processes do not descend from who asked for it.
		// Healthchecks come and go in those of the services, so the namespace decides.
		if s.spaces[p.space] {
			return besideAgent
		}
		return ofAgent
	case top == s.agent:
		return ofAgent
	case top == os.Getpid() || top == 0:
		// Ours: git runs as the agent's user for the checkpoints. Or its parent ended
		// while we read, and the next look knows where it belongs.
		return nobodys
	case s.others != nil && s.others.Includes(p.pid):
		return besideAgent
	}
	return ofAgent // it went into the background
}

// top is the first of these above p, itself included: the agent, ourselves, the
// first process; 0 when the way up is broken.
func (s *scene) top(p process, byPID map[int]process) int {
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

// watchdog decides that an agent hangs: for the length of the window it has
// printed nothing, changed nothing, used no CPU time to speak of, and no process of it
// appeared or ended. It is used by one goroutine.
type watchdog struct {
	window  time.Duration
	look    func() (agent, beside []process)
	heard   func() int64     // counts what the agent printed
	changed func() time.Time // nil means not known

	begun  bool
	quiet  time.Time // since when there is no other sign of life than CPU time
	last   time.Time // of looking
	count  int64
	change time.Time
	agents map[life]int64 // ticks when last seen
	beside map[life]int64
	spent  []spentAt
}

// life names a process for good: pids are used again.
type life struct {
	pid   int
	began string
}

// spentAt is the CPU time used up to a moment, in ticks.
type spentAt struct {
	at            time.Time
	agent, beside int64
}

// interval is how often to ask hung.
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
	// Whether the values differ counts, not what they are: times of files can be set.
	sign := !same || count != w.count || !change.Equal(w.change)
	// We did not run ourselves: the box was paused, and the agent with it.
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

// account returns the ticks that the processes used since the last look, and
// whether they are the same ones.
func (w *watchdog) account(known *map[life]int64, list []process) (used int64, same bool) {
	seen := make(map[life]int64, len(list))
	same = len(list) == len(*known)
	for _, p := range list {
		key := life{p.pid, p.Began}
		before, ok := (*known)[key]
		same = same && ok
		used += max(p.Ticks-before, 0)
		seen[key] = p.Ticks
	}
	*known = seen
	return used, same
}
