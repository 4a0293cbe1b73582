package proof

import (
	"bytes"
	"os"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// lookAround is who is there before a side's commands. Where they run as the caller, most of the user's processes are nobody's business
// here: then only those count that have the checkout's path in their environment.
func (r *sides) lookAround(s *side) *proc.Crowd {
	if r.User != nil {
		return proc.LookAround(r.uid(), nil)
	}
	mark := []byte(workspaceVar + s.tree)
	return proc.LookAround(r.uid(), func(pid int) bool { return marked(pid, mark) })
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, mark) {
			return true
		}
	}
	return false
}
