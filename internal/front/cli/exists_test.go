package cli

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestIfExistsTravels: the box decides by what the remote says then, not we by what it said before.
func TestIfExistsTravels(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout), ends(workorder.StatusTimeout, workorder.EndedByTimeout), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitTimeout, "", create("--if-exists", "tell")...)
	r.want(workorder.ExitTimeout, "", ifExists()...)
	r.want(0, "", "continue", tid)
	for i, want := range []workorder.IfExists{workorder.IfExistsReport, workorder.IfExistsReport, ""} {
		if got := r.order(i).IfExists; got != want {
			t.Errorf("order %d: if_exists is %q, want %q", i, got, want)
		}
	}
	r.want(0, "success", create("--if-exists", "tell")...)
	r.boxes(3)
}
