//go:build e2e && nightly

package e2e

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A commit is on the remote while the agent works on, and stays there when the
// box is killed.
func TestCommitIsPushedAtOnce(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	u := k.machine(t)
	s := k.begin(u, k.project(u, onlyCommits, "echo agent-is-busy\n"+await("commit")+"echo 1 >one && git add one && git commit -qm one\nsleep 600"))
	k.tell(t, "commit")
	k.at(t, "one")
	s.waitFor("push " + k.branch(t) + ": ok") // what the box did not tell, the lost run's result cannot say
	if cs := ours(t, k.id); len(cs) != 1 || cs[0].State != "running" {
		t.Fatalf("the box does not run: %+v", cs)
	}
	k.kill(t)
	r := k.ended(u, s.wait(), workorder.StatusLost, workorder.EndedByHost)
	if got := k.show(t, k.branch(t), "one"); got != "1" {
		t.Errorf("after the kill the branch has %q", got)
	}
	if !r.Pushed || r.Branch != k.branch(t) || r.HeadSHA != k.ref(t, workorder.BranchRef(r.Branch)) {
		t.Errorf("the result of the lost run names branch %q at %q, pushed %v", r.Branch, r.HeadSHA, r.Pushed)
	}
}
