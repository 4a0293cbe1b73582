//go:build e2e && nightly

package e2e

import (
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Several machines begin the same task in the same moment.
func TestTwoMachinesBeginOneTask(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	var runs [2]*started
	var users [2]*user
	for i := range runs {
		users[i] = k.machine(t)
		runs[i] = users[i].start("", k.create(k.project(users[i], "", busy+await("end")), "--if-exists", "continue")...)
	}
	select { // whoever lost the race has ended: both are at it at the same time
	case <-runs[0].Done():
	case <-runs[1].Done():
	}
	// One that lost at once did so before the other had a box.
	eventually(t, "a box runs", func() bool {
		cs := ours(t, k.id)
		return len(cs) == 1 && cs[0].State == container.StateRunning
	})
	k.tell(t, "end")
	byStatus := map[workorder.EndedBy]int{}
	for i, s := range runs {
		c := s.wait()
		// On one engine, the other's container may have the name already: nothing began here.
		if c.code == workorder.ExitBox && users[i].run("", "result", k.id, "--path").code == workorder.ExitNotFound {
			continue
		}
		r := k.read(users[i])
		k.valid(users[i], r)
		byStatus[r.EndedBy]++
		if c.code != workorder.ExitCode(r.Status, r.EndedBy) {
			t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
		}
		if r.EndedBy == workorder.EndedByAgent {
			landed(t, k.bare, r)
		}
	}
	if st := k.state(t); byStatus[workorder.EndedByAgent] == 0 || len(st.Attempts) != 1 || st.Lease != nil {
		t.Errorf("ended by %v; the remote says %+v", byStatus, st.Attempts)
	}
}
