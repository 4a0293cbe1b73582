// Package next says what the user of a finished run would most likely do next.
//
// The box writes it into its result for those who run boxes without the CLI; the host
// recomposes it, because it believes no command of a box's and knows where a local repository is.
package next

import (
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Task is what a command names.
type Task struct {
	ID   string
	Mode workorder.Mode
	Repo string // address of the remote
}

// Command is ready to be pasted into a shell, whatever the names in it are. res
// has its final status, and Resumable.
func Command(t Task, res *workorder.Result) string {
	cli := func(verb string) string { return "sandbox-agent " + verb + " " + t.ID }
	x := res.Rebased
	switch {
	case res.Status == workorder.StatusPlanned:
		return cli("create --from-plan")
	case x != nil && !x.Pushed && x.Kept != "" && res.Status == workorder.StatusFailed:
		return text.Shell("git", "fetch", t.Repo, x.Kept) + " && git log FETCH_HEAD"
	case res.Resumable && t.Mode == workorder.ModeRebase && res.Status != workorder.StatusError:
		return cli("rebase")
	case res.Resumable && res.ResumeAt != nil:
		return cli("continue") + " --wait"
	case res.Resumable:
		return cli("continue")
	case res.Pushed && (pullrequest.Unanswered(res) || lacksPR(res)):
		return cli("pr open")
	case !res.Pushed || res.BaseBranch == "" && res.BaseSHA == "":
		return cli("logs")
	}
	return cli("diff")
}

// lacksPR reports whether a pull request was to be opened and was not.
func lacksPR(res *workorder.Result) bool {
	pr := res.Step(workorder.StepPR)
	return res.PR == nil && pr != nil && pr.Status != workorder.StepDone
}
