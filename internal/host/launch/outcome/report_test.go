package outcome

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const oldHead = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"

// twoAttempts is the record of a task whose first attempt proved its branch, and whose second is a rebase of which the result is given.
func twoAttempts(t *testing.T) (*taskstore.Record, *workorder.Result) {
	t.Helper()
	rec := &taskstore.Record{
		TaskID: "T-A1B2C3D4", Dir: t.TempDir(), Repo: "https://git.example/r.git", Branch: "main", TargetBranch: "agent/T-A1B2C3D4-x",
		Mode: workorder.ModeRebase, Attempt: 2, PastAttempts: []taskstore.Attempt{{Number: 1}},
	}
	first := &workorder.Result{
		TaskID: rec.TaskID, Mode: workorder.ModeCreate, Status: workorder.StatusSuccess, Branch: rec.TargetBranch, BaseBranch: "main", Pushed: true, HeadSHA: oldHead,
		TaskText: &workorder.TaskText{Task: "Do it well"}, Commits: []workorder.Commit{{SHA: oldHead, Subject: "Do it"}}, PR: &workorder.PR{Number: 7, State: "open"},
		Proof: &workorder.Proof{
			Head: oldHead, Checks: []workorder.CheckProof{{Name: "test", Transition: workorder.TransitionFixed, Base: &workorder.CheckRun{}, Head: &workorder.CheckRun{Passed: true}}},
			Pages: []workorder.PageProof{{Path: "/", Width: 390, Head: &workorder.PageView{Status: 200, Picture: "evidence/pages/1.png"}}},
		},
	}
	past, err := rec.At(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(past.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteResult(past, first); err != nil {
		t.Fatal(err)
	}
	writeOrder(t, past.Dir, rec, workorder.ModeCreate)
	writeOrder(t, rec.Dir, rec, workorder.ModeRebase)
	later := *first
	later.Mode, later.Status, later.EndedBy, later.Reasons = workorder.ModeRebase, workorder.StatusNoChanges, workorder.EndedByGit, workorder.Because(workorder.ReasonUnchanged, "it is on main already")
	later.Proof, later.PR, later.Restored = nil, nil, &workorder.Restored{Head: oldHead}
	later.Steps = []workorder.Step{{Name: "agent", Status: workorder.StepSkipped}, {Name: workorder.StepPR, Status: workorder.StepSkipped}}
	return rec, &later
}

func writeOrder(t *testing.T, dir string, rec *taskstore.Record, mode workorder.Mode) {
	t.Helper()
	o := &workorder.Order{
		Version: workorder.Version, TaskID: rec.TaskID, Mode: mode, Repo: rec.Repo, CloneURL: rec.Repo, TargetBranch: rec.TargetBranch, TimeoutMinutes: 30,
		Harness: workorder.Harness{Name: "command", Command: []string{"true"}}, Validate: []workorder.Check{{Name: "test", Run: "make test"}},
		BoxSpec: workorder.BoxSpec{Network: workorder.NetworkPolicy{Mode: workorder.NetworkFull}},
	}
	if mode == workorder.ModeRebase {
		o.Rebase = &workorder.Rebase{}
	} else {
		o.Task = "Do it well"
	}
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, workorder.OrderFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := workorder.DecodeOrder(b); err != nil {
		t.Fatal(err)
	}
}

// The report stays that of the attempt that proved the branch, with its pictures where they lie now, and one line on the later attempt,
// whose pull request is the one that the branch has.
func TestReportOfLaterAttempt(t *testing.T) {
	t.Parallel()
	rec, later := twoAttempts(t)
	KnownPR(rec, later)
	if later.PR == nil || later.PR.Number != 7 || strings.Contains(later.NextCommand, "pr open") {
		t.Errorf("%+v, next: %s", later.PR, later.NextCommand)
	}
	for _, r := range []*workorder.Result{later, {
		TaskID: rec.TaskID, Mode: workorder.ModeRebase, Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Reasons: workorder.Because(workorder.ReasonPush, "somebody else pushed"), HeadSHA: oldHead,
		Restored: later.Restored, Commits: later.Commits, Branch: later.Branch, Pushed: true,
	}} {
		if err := WriteReport(rec, r); err != nil {
			t.Fatal(err)
		}
		if told, _ := LoadReport(rec, r); told.Result.Proof == nil || told.Later != r {
			t.Errorf("%s: %+v", r.Status, told)
		}
		for name, picture := range map[string]string{workorder.ReportMarkdown: `<img src="./attempts/1/evidence/pages/1.png"`, workorder.ReportHTML: `href="./attempts/1/evidence/pages/1.png"`} {
			b, err := os.ReadFile(filepath.Join(rec.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"Do it well", "(rebase)", ": " + r.Reasons.String(), picture} {
				if !strings.Contains(string(b), want) {
					t.Errorf("%s, %s: no %q in\n%s", r.Status, name, want, b)
				}
			}
		}
	}
	// Another head is another report.
	later.HeadSHA = strings.Repeat("b", 40)
	if told, dir := LoadReport(rec, later); told.Result != later || told.Later != nil || dir != rec.Dir {
		t.Errorf("%+v of %s", told, dir)
	}
}

// An attempt before that proved nothing has nothing to say in place of a later one.
func TestReportAfterAnUnprovenAttempt(t *testing.T) {
	t.Parallel()
	rec, later := twoAttempts(t)
	past, err := rec.At(1)
	if err != nil {
		t.Fatal(err)
	}
	first, err := ReadResult(past)
	if err != nil {
		t.Fatal(err)
	}
	first.Proof, first.Status, first.EndedBy = nil, workorder.StatusTimeout, workorder.EndedByTimeout
	if err := WriteResult(past, first); err != nil {
		t.Fatal(err)
	}
	if told, dir := LoadReport(rec, later); told.Result != later || told.Later != nil || dir != rec.Dir {
		t.Errorf("%+v of %s", told, dir)
	}
}

// A lost attempt's report says what the task is, though its result does not and its order has an addition.
func TestReportOfLostAttempt(t *testing.T) {
	t.Parallel()
	rec, _ := twoAttempts(t)
	o := orderOf(rec)
	o.Mode, o.Rebase, o.Task = workorder.ModeContinue, nil, "Also notes"
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rec.Dir, workorder.OrderFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	rec.Attempt, rec.PastAttempts = 3, append(rec.PastAttempts, taskstore.Attempt{Number: 2})
	between, err := rec.At(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(between.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o.Task = "And a test"
	if b, err = json.Marshal(o); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(between.Dir, workorder.OrderFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(rec, &workorder.Result{TaskID: rec.TaskID, Mode: workorder.ModeContinue, Status: workorder.StatusLost}); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(filepath.Join(rec.Dir, workorder.ReportMarkdown)); err != nil {
		t.Fatal(err)
	}
	if first, then, last := strings.Index(string(b), "> Do it well"), strings.Index(string(b), "> And a test"), strings.Index(string(b), "> Also notes"); first < 0 || then < first || last < then {
		t.Errorf("%s", b)
	}
}
