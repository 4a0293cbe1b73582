package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestTwoStateFolders: of two state folders on one engine that begin the same task,
// the second one is told of the first one's box, and leaves it alone.
func TestTwoStateFolders(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"create": create(), "if exists": ifExists()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
			r.hold = make(chan struct{})
			r.want(0, tid, create("--detach")...)
			here := r.state
			r.state = t.TempDir()
			r.want(workorder.ExitGit, "sandbox-agent-"+tid, args...)
			r.want(0, `"ended_by": "lease"`, "result", tid, "--json")
			r.want(0, tid, "rm", tid)
			if n := r.fake.Count(); n != 1 {
				t.Errorf("%d boxes are left, want the first one's", n)
			}
			r.state = here
			close(r.hold)
			r.want(0, "success", "logs", "-f", tid)
			r.boxes(1)
		})
	}
}

// TestConflictWithOwn: a stopped box of a task that was deleted by hand is not
// another one's.
func TestConflictWithOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.silent = true // the remote knows nothing of it
	r.want(workorder.ExitBox, "", create("--keep")...)
	if err := os.RemoveAll(filepath.Join(r.state, tid)); err != nil {
		t.Fatal(err)
	}
	r.want(workorder.ExitBox, "sandbox-agent gc", create()...)
	r.want(0, "sandbox-agent-"+tid, "gc")
	r.silent = false
	r.want(0, "success", ifExists()...)
}
