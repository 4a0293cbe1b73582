package proof

import (
	"bytes"
	"os"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// lookAround returns the processes from before a side's commands. If they run as the current user, only those with the
// checkout's path in their environment count.
func (r *sides) lookAround(s *side) *proc.ProcessSet {
	if r.User != nil {
		return proc.SnapshotProcesses(r.uid(), nil)
	}
	mark := []byte(workspaceVar + s.tree)
	return proc.SnapshotProcesses(r.uid(), func(pid int) bool { return marked(pid, mark) })
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
