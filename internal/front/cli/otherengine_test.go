package cli

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// onOtherEngine is a rig whose commands go to another engine than the one that
// has the box of its task.
func onOtherEngine(t *testing.T) (r *rig, there *runtimetest.Fake) {
	t.Helper()
	r = newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.hold = make(chan struct{})
	r.want(0, tid, create("--detach")...)
	there, r.fake = r.fake, runtimetest.NewFake(r.fake.Programs)
	r.fake.Details.ID, r.fake.Details.Host = "another", "tcp://other:2375"
	return r, there
}

// TestOtherEngine: what another engine does not have is not lost.
func TestOtherEngine(t *testing.T) {
	t.Parallel()
	r, there := onOtherEngine(t)
	const said = "tcp://other:2375\nhint: set DOCKER_HOST=unix:///fake.sock,"
	for _, args := range [][]string{
		{"result", tid},
		{"continue", tid},
		{"logs", tid},
		{"logs", "-f", tid},
		{"stop", tid},
		{"rm", tid},
		ifExists(),
	} {
		r.want(workorder.ExitBox, said, args...)
	}
	r.without(0, "sandbox-agent-", "gc", "--dry-run")
	r.without(0, "sandbox-agent-", "gc")
	r.want(0, "unknown", "ps")
	r.want(0, `"engine": "unix:///fake.sock"`, "ps", "--json")
	r.fake.Details.Host = there.Details.Host
	r.want(workorder.ExitBox, " another ", "result", tid)
	// Old engines share the id with the other ones of their machine.
	r.fake.Details.ID, r.fake.Details.RootDir = there.Details.ID, "/second"
	r.want(workorder.ExitBox, " fake /second", "result", tid)
	if rec, err := taskstore.New(r.state).Load(tid); err != nil || rec.Collected {
		t.Errorf("%+v, %v", rec, err)
	}
	r.boxes(1)
	// The same engine at another address.
	there.Details.Host = "tcp://elsewhere:2375"
	r.fake = there
	r.want(workorder.ExitGeneral, "`sandbox-agent logs -f "+tid+"`", "continue", tid)
	close(r.hold)
	r.want(0, "success", "logs", "-f", tid)
	r.want(0, "success", "result", tid)
	if n := there.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
}

// TestForgetOtherEngine: a task can be forgotten though its engine is gone, and
// whoever does so is told what is left.
func TestForgetOtherEngine(t *testing.T) {
	t.Parallel()
	r, there := onOtherEngine(t)
	r.want(0, "sandbox-agent-"+tid+" on unix:///fake.sock", "rm", "--force", tid)
	r.want(0, "[]\n", "ps", "--json")
	r.fake = there
	r.without(0, "sandbox-agent-", "gc")
	close(r.hold)
	r.removed()
}

// TestKeptOnOtherEngine: a kept box keeps nobody from forgetting the task.
func TestKeptOnOtherEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(0, "success", create("--keep")...)
	there := r.fake
	r.fake = runtimetest.NewFake(there.Programs)
	r.fake.Details.ID = "another"
	r.want(0, "success", "result", tid)
	r.want(0, "sandbox-agent-"+tid, "rm", tid)
	r.fake = there
	r.removed()
}

// removed waits until gc has removed the box of a task that is forgotten.
func (r *rig) removed() {
	r.t.Helper()
	for r.fake.Count() > 0 && r.t.Context().Err() == nil {
		r.run("gc")
	}
	r.without(0, "sandbox-agent-", "gc")
}
