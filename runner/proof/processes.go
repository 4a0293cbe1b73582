package proof

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// crowd are the user's processes at a moment. A later one belongs to it when it was
// there, shares a session with one that was, descends from one, or descends from ourselves (git that we run as the
// user). All others were started by a command since, whose own process has been waited for.
//
// Where commands run as the caller, most of the user's processes are nobody's
// business here: then only those count that have the checkout's path in their environment.
type crowd struct {
	uid      uint32
	mark     []byte
	began    map[int]string // by pid, so that a reused pid is told apart
	sessions map[string]bool
}

func (r *run) lookAround(s *side) *crowd {
	c := &crowd{uid: r.uid(), began: map[int]string{}, sessions: map[string]bool{}}
	if r.User == nil {
		c.mark = []byte(workspaceVar + s.tree)
	}
	for _, pid := range proc.OfUser(c.uid) {
		if st, ok := readStat(pid); ok && c.counts(pid) {
			c.began[pid], c.sessions[st.session] = st.began, true
		}
	}
	return c
}

// more reports whether a crowd has processes that an earlier one did not.
func (c *crowd) more(earlier *crowd) bool {
	for pid, began := range c.began {
		if earlier.began[pid] != began && !earlier.includes(pid) {
			return true
		}
	}
	return false
}

// sweep kills everybody who came since and reports how many withstood.
func (c *crowd) sweep() (left int) {
	return proc.Sweep(c.uid, func(pid int) bool { return !c.counts(pid) || c.includes(pid) })
}

func (c *crowd) counts(pid int) bool {
	if c.mark == nil {
		return true
	}
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, c.mark) {
			return true
		}
	}
	return false
}

// maxAncestors bounds the walk to the top of the process tree.
const maxAncestors = 64

func (c *crowd) includes(pid int) bool {
	for range maxAncestors {
		st, ok := readStat(pid)
		if !ok {
			return false
		}
		if began, ok := c.began[pid]; ok && began == st.began || c.sessions[st.session] || st.parent == os.Getpid() {
			return true
		}
		if st.parent <= 1 {
			return false
		}
		pid = st.parent
	}
	return false
}

type stat struct {
	parent         int
	session, began string
}

// readStat reads /proc/<pid>/stat, whose second field is a name in brackets that may contain anything.
func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(f[1])
	return stat{parent: parent, session: f[3], began: f[19]}, err == nil
}
