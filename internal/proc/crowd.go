package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Crowd is the processes of a user at a moment, whom a Sweep spares: servers that were started before a command
// began. A later process belongs to it when it was there, shares a session with one that was, descends from one, or descends
// from ourselves: git that we run as that user meanwhile is below us, where a command that has been waited for has left
// nothing. A newcomer can get into none of these: sessions cannot be joined and parents not chosen.
type Crowd struct {
	uid      uint32
	counts   func(pid int) bool // nil means all of the user's
	began    map[int]string     // pid → start time, to recognize a reused pid
	sessions map[int]bool
}

// LookAround lists the current processes of uid. counts selects the processes to list and to end; nil selects all.
func LookAround(uid uint32, counts func(pid int) bool) *Crowd {
	c := &Crowd{uid: uid, counts: counts, began: map[int]string{}, sessions: map[int]bool{}}
	for _, pid := range OfUser(uid) {
		if counts == nil || counts(pid) {
			c.add(pid)
		}
	}
	return c
}

// add makes a process that is there now one of the crowd.
func (c *Crowd) add(pid int) {
	if st, err := ReadStat(pid); err == nil {
		c.began[pid], c.sessions[st.Session] = st.Began, true
	}
}

// Sweep kills everybody who came since and reports how many withstood.
func (c *Crowd) Sweep() (left int) {
	return Sweep(c.uid, func(pid int) bool { return c.counts != nil && !c.counts(pid) || c.Includes(pid) })
}

// More reports whether a crowd has processes that an earlier one did not.
func (c *Crowd) More(earlier *Crowd) bool {
	for pid, began := range c.began {
		if earlier.began[pid] != began && !earlier.Includes(pid) {
			return true
		}
	}
	return false
}

// MaxAncestors bounds the walk to the top of the process tree.
const MaxAncestors = 64

// Includes reports whether a process belongs to the crowd.
func (c *Crowd) Includes(pid int) bool {
	for range MaxAncestors {
		st, err := ReadStat(pid)
		if err != nil {
			return false
		}
		if began, ok := c.began[pid]; ok && began == st.Began || c.sessions[st.Session] {
			return true
		}
		switch {
		case st.Parent == os.Getpid():
			return true
		case st.Parent <= 1:
			return false
		}
		pid = st.Parent
	}
	return false
}

// Stat is what the kernel says of a process at a moment.
type Stat struct {
	Parent, Session int
	Name            string // as the kernel has it: 15 bytes of the program's, or what the process called itself
	State, Began    string // Began in ticks since the machine's start: with the pid it names the process for good
	Ticks           int64  // CPU time, with that of children it has waited for
	Zombie          bool
}

// ReadStat reads it of a process in /proc.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

// ParseStat parses a file /proc/<pid>/stat. The second field is the program's name in
// brackets and may contain anything, so the fields count from its last bracket.
func ParseStat(b []byte) (Stat, error) {
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 20 {
		return Stat{}, fmt.Errorf("process state %q has too few fields", b)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return Stat{}, fmt.Errorf("read parent: %w", err)
	}
	session, err := strconv.Atoi(f[3])
	if err != nil {
		return Stat{}, fmt.Errorf("read session: %w", err)
	}
	var ticks int64
	for _, s := range f[11:15] { // its own in user and kernel mode, its children's in both
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("read CPU time: %w", err)
		}
		ticks += n
	}
	name := string(b[min(bytes.IndexByte(b, '(')+1, i):i])
	return Stat{Parent: parent, Session: session, Name: name, State: f[0], Began: f[19], Ticks: ticks, Zombie: f[0] == "Z" || f[0] == "X"}, nil
}
