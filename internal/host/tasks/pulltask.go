package tasks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// OfPull is the task of a pull request's branch. It refuses pull requests that are of a fork, of another branch or not open: this
// program must not write to them.
func OfPull(pr *forge.PR) (id string, err error) {
	branch := text.Clean(pr.Head)
	id, ok := branchTask(pr.Head)
	hint := ""
	switch {
	case pr.Fork:
		err = fmt.Errorf("pull request #%d comes from another repository (%s): its branch is not ours to push", pr.Number, text.Clean(cmp.Or(pr.HeadRepo, "which is gone")))
		hint = "only pull requests of a task's own branch can be worked on"
	case !ok:
		err = fmt.Errorf("pull request #%d is of the branch %s, which is no task's", pr.Number, branch)
		hint = "a task's branch begins with agent/T-; `sandbox-agent create --branch " + branch + "` starts a task from this one"
	case pr.State != forge.StateOpen:
		err = fmt.Errorf("pull request #%d is %s", pr.Number, text.Clean(pr.State))
		hint = "reopen it, or go on with its task: `sandbox-agent continue " + id + " --task \"...\"`"
	}
	return id, fault.New(workorder.ExitGit, err, hint)
}

// branchTask is the task of a branch: agent/T-XXXXXXXX, with or without words after it.
func branchTask(branch string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(branch, "agent/")
	const size = len("T-XXXXXXXX")
	if !ok || len(rest) < size {
		return "", false
	}
	id = rest[:size]
	return id, workorder.ValidTaskID(id) && workorder.ValidRefName(branch) && workorder.OwnBranch(id, branch)
}
