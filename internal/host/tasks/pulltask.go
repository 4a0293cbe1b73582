package tasks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// OfPull is the task whose branch a pull request is of. One of a fork, of a branch that is no task's, or that is not open is refused:
// nothing of this program may write to it.
func OfPull(pr *forge.PR) (id string, err error) {
	branch := render.Clean(pr.Head)
	id, ok := branchTask(pr.Head)
	hint := ""
	switch {
	case pr.Fork:
		err = fmt.Errorf("pull request #%d comes from another repository (%s): its branch is not ours to push", pr.Number, render.Clean(cmp.Or(pr.HeadRepo, "which is gone")))
		hint = "only pull requests of a task's own branch can be worked on"
	case !ok:
		err = fmt.Errorf("pull request #%d is of the branch %s, which is no task's", pr.Number, branch)
		hint = "a task's branch begins with agent/T-; `sandbox-agent create --branch " + branch + "` starts a task from this one"
	case pr.State != forge.StateOpen:
		err = fmt.Errorf("pull request #%d is %s", pr.Number, render.Clean(pr.State))
		hint = "reopen it, or go on with its task: `sandbox-agent continue " + id + " --task \"...\"`"
	}
	return id, fault.New(workorder.ExitGit, err, hint)
}

// branchTask is the task whose branch that is: agent/T-XXXXXXXX, with or without words behind it.
func branchTask(branch string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(branch, "agent/")
	const size = len("T-XXXXXXXX")
	if !ok || len(rest) < size {
		return "", false
	}
	id = rest[:size]
	return id, workorder.ValidTaskID(id) && workorder.ValidRefName(branch) && workorder.OwnBranch(id, branch)
}
