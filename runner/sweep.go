package runner

import (
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// bystanders are the user's processes that were there before a command began:
// servers that setup started in the background. A process is one of them when it was there,
// shares a session with one that was, or descends from one. A newcomer can get
// into none of these: sessions cannot be joined and parents not chosen. What we
// run as that user meanwhile, git for a snapshot, is one as well: it is below ourselves, where
// the command, which has been waited for, has left nothing.
type bystanders struct {
	uid      uint32
	began    map[int]string // pid → start time, so that a reused pid is told apart
	sessions map[int]bool
}

func lookAround(uid uint32) *bystanders {
	b := &bystanders{uid: uid, began: map[int]string{}, sessions: map[int]bool{}}
	for _, pid := range proc.OfUser(uid) {
		if st, err := readStat(pid); err == nil {
			b.began[pid] = st.began
			b.sessions[st.session] = true
		}
	}
	return b
}

// sweep kills every process of the user that is no bystander and reports how
// many withstood.
func (b *bystanders) sweep() (left int) { return proc.Sweep(b.uid, b.includes) }

// maxAncestors bounds the walk to the top of the process tree.
const maxAncestors = 64

func (b *bystanders) includes(pid int) bool {
	for range maxAncestors {
		st, err := readStat(pid)
		if err != nil {
			return false
		}
		if began, ok := b.began[pid]; ok && began == st.began || b.sessions[st.session] {
			return true
		}
		switch {
		case st.parent == os.Getpid():
			return true
		case st.parent <= 1:
			return false
		}
		pid = st.parent
	}
	return false
}
