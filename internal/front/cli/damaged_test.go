package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestDamagedRecord: every command says which file is damaged and what to do, none
// touches the task's box, and by force the task can be forgotten.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "truncated": `{"task_id": "T-A1`, "of another task": `{"task_id":"T-00000000"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
			other := []string{"create", "-p", "P", "--task", "do it", "--task-id", "T-00000001", "--keep"}
			r.want(workorder.ExitTimeout, "", create("--keep")...)
			r.silent = true // its state would be that of the first one
			r.want(workorder.ExitBox, "", other...)
			r.silent = false
			path := filepath.Join(r.state, tid, "task.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			// The box of a task that is deleted by hand.
			if err := os.RemoveAll(filepath.Join(r.state, "T-00000001")); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"result", tid}, {"logs", "a1b2"}, {"stop", tid}, {"continue", tid}, {"rm", tid}, create(), ifExists()} {
				r.want(workorder.ExitGeneral, path, args...)
				r.want(workorder.ExitGeneral, "hint: `sandbox-agent rm --force "+tid+"`", args...)
			}
			r.want(0, "hint: `sandbox-agent rm --force "+tid+"`", "ps")
			r.want(workorder.ExitGeneral, path, "gc")
			if n := r.fake.Count(); n != 1 {
				t.Errorf("%d boxes, want that of the damaged task", n)
			}
			r.want(0, tid, "rm", "--force", "A1B2")
			r.want(0, "[]\n", "ps", "--json")
			r.without(0, "sandbox-agent-", "gc")
			if n := r.fake.Count(); n != 0 {
				t.Errorf("%d boxes are left", n)
			}
			r.want(workorder.ExitTimeout, "", "continue", tid, "-p", "P")
		})
	}
}
