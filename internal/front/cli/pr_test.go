package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A rebase with nothing to do sends nobody to `pr open`, and whoever runs it all the same writes what the attempt before proved, with one
// line on the rebase.
func TestPROpenAfterNothing(t *testing.T) {
	t.Parallel()
	r := newReviewRig(t, "")
	head := strings.Repeat("a1", 20)
	proved := func(res *workorder.Result) {
		res.Mode, res.Status, res.EndedBy, res.HeadSHA, res.Pushed = workorder.ModeContinue, workorder.StatusSuccess, workorder.EndedByAgent, head, true
		res.Branch, res.BaseBranch, res.Commits = r.order(0).TargetBranch, "main", []workorder.Commit{{SHA: head, Subject: "Do it"}}
		res.TaskText, res.PR = &workorder.TaskText{Task: "Do it well", Added: []string{"Also notes"}}, &workorder.PR{Number: r.pr, State: "open"}
		res.Validation = []workorder.Validation{{Name: "test", Passed: true}}
	}
	nothing := func(res *workorder.Result) {
		proved(res)
		res.Status, res.EndedBy, res.Reasons = workorder.StatusNoChanges, workorder.EndedByGit, workorder.Because(workorder.ReasonUnchanged, "it is on main already")
		res.PR, res.Validation, res.Restored = nil, nil, &workorder.Restored{Head: head}
		res.Steps = []workorder.Step{{Name: "agent", Status: workorder.StepSkipped}, {Name: workorder.StepPR, Status: workorder.StepSkipped}}
	}
	r.ends = append(r.ends, proved, nothing)
	r.want(0, "success", "continue", tid, "--task", "Also notes")
	if code, out, errs := r.run("rebase", tid); code != 0 || strings.Contains(out+errs, "pr open") {
		t.Errorf("exit %d; next is to open a pull request that is there:\n%s%s", code, out, errs)
	}
	r.want(0, "#1 open", "pr", "open", tid)
	i, _ := r.f.Issue(r.pr)
	_, dir, _ := r.run("result", tid, "--path")
	report, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), workorder.ReportMarkdown))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"body": i.Body, "report": string(report)} {
		for _, want := range []string{"> Do it well", "> Also notes", "(rebase)", "it is on main already"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", what, want, text)
			}
		}
		if strings.Contains(text, "Nothing changed") || strings.Contains(text, "agent ended") {
			t.Errorf("%s:\n%s", what, text)
		}
	}
	if i.Title != "Do it well" {
		t.Errorf("the title is %q", i.Title)
	}
}
