package cli

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestOnlySaved: a task of which the remote has neither state nor branch, but work
// that was saved beside them, is known, and its base may be gone as well.
func TestOnlySaved(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.ByTimeout))
	r.want(workorder.ExitTimeout, "", create()...)
	gittest.Git(t, r.bare, "update-ref", workorder.CheckpointRef(tid), "main")
	gittest.Git(t, r.bare, "update-ref", "-d", workorder.StateRef(tid))
	gittest.Git(t, r.bare, "update-ref", "-d", "refs/heads/main")

	r.want(workorder.ExitTimeout, "", "continue", tid)
	if o := r.order(1); o.Mode != workorder.ModeContinue || o.Task != "do it" || o.TargetBranch != r.order(0).TargetBranch {
		t.Errorf("%+v", o)
	}
	gittest.Git(t, r.bare, "update-ref", "-d", workorder.StateRef(tid))
	r.state = t.TempDir()
	r.want(workorder.ExitUsage, "knows it", create()...)
	r.want(workorder.ExitGit, "--target-branch, --task", "continue", tid, "-p", "P")
	r.boxes(2)
	r.want(workorder.ExitTimeout, "", ifExists()...)
	if o := r.order(2); o.Mode != workorder.ModeContinue || o.Task != "do it" || o.TargetBranch != r.order(0).TargetBranch {
		t.Errorf("%+v", o)
	}
}
