package pullrequest

import (
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestNextCommand(t *testing.T) {
	pushed := func(change func(*workorder.Result)) workorder.Result {
		r := workorder.Result{Status: workorder.StatusSuccess, Pushed: true, Branch: "b", BaseBranch: "main", BaseSHA: "0123"}
		change(&r)
		return r
	}
	for _, c := range []struct {
		name string
		task Task
		res  workorder.Result
		want string
	}{
		{"done", Task{ID: "T-1", Repo: "r"}, pushed(func(*workorder.Result) {}), "sandbox-agent diff T-1"},
		{"no name of the base", Task{ID: "T-1"}, pushed(func(r *workorder.Result) { r.BaseBranch = "" }), "sandbox-agent diff T-1"},
		{"nothing pushed", Task{ID: "T-1", Repo: "r"}, workorder.Result{BaseBranch: "main"}, "sandbox-agent logs T-1"},
		{
			"a plan",
			Task{ID: "T-1", Repo: "r", Mode: workorder.ModePlan},
			workorder.Result{Status: workorder.StatusPlanned},
			"sandbox-agent create --from-plan T-1",
		},
		{
			"no plan",
			Task{ID: "T-1", Repo: "r", Mode: workorder.ModePlan},
			workorder.Result{Status: workorder.StatusTimeout},
			"sandbox-agent logs T-1",
		},
		{"cut off", Task{ID: "T-1", Repo: "r"}, pushed(func(r *workorder.Result) { r.Resumable = true }), "sandbox-agent continue T-1"},
		{"parked", Task{ID: "T-1", Repo: "r"}, workorder.Result{Resumable: true, ResumeAt: new(time.Now())}, "sandbox-agent continue T-1 --wait"},
		{
			"a rebase that was cut off",
			Task{ID: "T-1", Repo: "r", Mode: workorder.ModeRebase},
			workorder.Result{Resumable: true, Status: workorder.StatusTimeout},
			"sandbox-agent rebase T-1",
		},
		{
			"a rebase that breaks the checks",
			Task{ID: "T-1", Repo: "r", Mode: workorder.ModeRebase},
			workorder.Result{Status: workorder.StatusFailed, Resumable: true, Rebased: &workorder.Rebased{Kept: "refs/x"}},
			"git fetch r refs/x && git log FETCH_HEAD",
		},
		{
			"no pull request",
			Task{ID: "T-1", Repo: "r"},
			pushed(func(r *workorder.Result) {
				r.Steps = []workorder.Step{{Name: workorder.StepPR, Status: workorder.StepFailed}}
			}), "sandbox-agent pr open T-1",
		},
		{
			"an answer is missing",
			Task{ID: "T-1", Repo: "r"},
			pushed(func(r *workorder.Result) {
				r.PR = &workorder.PR{Number: 7}
				r.Review = []workorder.ReviewAnswer{{Source: workorder.ReviewFromThread, Answer: workorder.AnswerReason}}
			}), "sandbox-agent pr open T-1",
		},
	} {
		if got := NextCommand(c.task, &c.res); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}
