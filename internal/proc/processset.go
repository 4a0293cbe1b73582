package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ProcessSet holds the processes of a user at a moment, which KillOthers spares. A later process belongs to the set if
// it shares a session with a member, descends from one, or descends from this process. No other process can enter it,
// because a process can neither join a session nor choose its parent.
type ProcessSet struct {
	uid      uint32
	counts   func(pid int) bool // nil means all of the user's
	began    map[int]string     // pid → start time, to recognize a reused pid
	sessions map[int]bool
}

// SnapshotProcesses lists the current processes of uid. counts selects the processes to list and to end; nil selects all.
func SnapshotProcesses(uid uint32, counts func(pid int) bool) *ProcessSet {
	s := &ProcessSet{uid: uid, counts: counts, began: map[int]string{}, sessions: map[int]bool{}}
	for _, pid := range OfUser(uid) {
		if counts == nil || counts(pid) {
			s.add(pid)
		}
	}
	return s
}

// add includes an existing process.
func (s *ProcessSet) add(pid int) {
	if st, err := ReadStat(pid); err == nil {
		s.began[pid], s.sessions[st.Session] = st.Began, true
	}
}

// KillOthers kills the processes outside the set and returns how many survived.
func (s *ProcessSet) KillOthers() (left int) {
	return Sweep(s.uid, func(pid int) bool { return s.counts != nil && !s.counts(pid) || s.Includes(pid) })
}

// HasNew reports whether the set has processes that an earlier set lacks.
func (s *ProcessSet) HasNew(earlier *ProcessSet) bool {
	for pid, began := range s.began {
		if earlier.began[pid] != began && !earlier.Includes(pid) {
			return true
		}
	}
	return false
}

// MaxAncestors bounds the walk to the top of the process tree.
const MaxAncestors = 64

// Includes reports whether a process belongs to the set.
func (s *ProcessSet) Includes(pid int) bool {
	for range MaxAncestors {
		st, err := ReadStat(pid)
		if err != nil {
			return false
		}
		if began, ok := s.began[pid]; ok && began == st.Began || s.sessions[st.Session] {
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

// Stat is the state of a process at a moment.
type Stat struct {
	Parent, Session int
	Name            string // the first 15 bytes of the program's name, or a name that the process chose
	State, Began    string // Began is in ticks since the machine's start: with the pid it identifies a process
	Ticks           int64  // CPU time, including children that it has waited for
	Zombie          bool
}

// ReadStat reads the state of a process from /proc.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

// ParseStat parses /proc/<pid>/stat. The program's name may contain any character, so fields are counted from the last
// parenthesis.
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
	for _, s := range f[11:15] { // user and kernel time, of the process and of its children
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("read CPU time: %w", err)
		}
		ticks += n
	}
	name := string(b[min(bytes.IndexByte(b, '(')+1, i):i])
	return Stat{Parent: parent, Session: session, Name: name, State: f[0], Began: f[19], Ticks: ticks, Zombie: f[0] == "Z" || f[0] == "X"}, nil
}
