package pullrequest

import (
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Task is what NextCommand names.
type Task struct {
	ID   string
	Mode workorder.Mode
	Repo string // address of the remote
}

// NextCommand returns the command that the user of a finished run most likely runs next, quoted for a shell. res has its final status, and
// Resumable. The box writes the command into its result for users who run boxes without the command line; the host composes it
// again, because it believes no command of a box and knows where a local repository is.
func NextCommand(t Task, res *workorder.Result) string {
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
	case res.Pushed && (Unanswered(res) || lacksPR(res)):
		return cli("pr open")
	case !res.Pushed || res.BaseBranch == "" && res.BaseSHA == "":
		return cli("logs")
	}
	return cli("diff")
}

func lacksPR(res *workorder.Result) bool {
	pr := res.Step(workorder.StepPR)
	return res.PR == nil && pr != nil && pr.Status != workorder.StepDone
}
