package pullrequest

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// attempts are one that proved the branch, and a rebase after it that left the branch as it was.
func attempts() (o *workorder.Order, first, later *workorder.Result) {
	const branch = "agent/T-A1B2C3D4-x"
	o = &workorder.Order{
		TaskID: "T-A1B2C3D4", Repo: "https://github.com/o/app",
		Validate: []workorder.Check{{Name: "test", Run: "make test"}}, PR: &workorder.PullRequest{},
	}
	head := strings.Repeat("a1", 20)
	first = &workorder.Result{
		TaskID: o.TaskID, Mode: workorder.ModeCreate, Status: workorder.StatusSuccess, Branch: branch, BaseBranch: "main", HeadSHA: head,
		Pushed:  true,
		Commits: []workorder.Commit{{SHA: head, Subject: "Do it"}}, TaskText: &workorder.TaskText{Task: "Do it well"},
		Proof: &workorder.Proof{Head: head, Checks: []workorder.CheckProof{{
			Name: "test", Transition: workorder.TransitionFixed,
			Base: &workorder.CheckRun{}, Head: &workorder.CheckRun{Passed: true},
		}}},
	}
	r := *first
	later = &r
	later.Mode, later.Status, later.EndedBy, later.Reasons = workorder.ModeRebase, workorder.StatusNoChanges, workorder.EndedByGit, workorder.Because(workorder.ReasonUnchanged, "it is on main already")
	later.Proof, later.Restored = nil, &workorder.Restored{Head: head}
	later.Steps = []workorder.Step{{Name: "agent", Status: workorder.StepSkipped}}
	return o, first, later
}

func TestAsBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*workorder.Order, *workorder.Result)
		want   bool
	}{
		"a rebase with nothing to do": {func(*workorder.Order, *workorder.Result) {}, true},
		"a rebase that was refused":   {func(_ *workorder.Order, r *workorder.Result) { r.Status = workorder.StatusError }, true},
		"a rebase that does not hold": {func(_ *workorder.Order, r *workorder.Result) {
			r.Status, r.Validation = workorder.StatusFailed, []workorder.Validation{{Name: "test"}}
			r.Proof = &workorder.Proof{Head: "new", Checks: []workorder.CheckProof{{Head: &workorder.CheckRun{}}}}
		}, true},
		"a rebase that moved the branch": {func(_ *workorder.Order, r *workorder.Result) { r.HeadSHA = "new" }, false},
		"a first attempt":                {func(_ *workorder.Order, r *workorder.Result) { r.Restored = nil }, false},
		"no branch":                      {func(_ *workorder.Order, r *workorder.Result) { r.Commits = nil }, false},
		"stopped before the proof":       {func(_ *workorder.Order, r *workorder.Result) { r.Mode = workorder.ModeContinue }, true},
		"proved again": {func(_ *workorder.Order, r *workorder.Result) {
			r.Mode, r.Proof = workorder.ModeContinue, &workorder.Proof{
				Head:   r.HeadSHA,
				Checks: []workorder.CheckProof{{Base: &workorder.CheckRun{}, Head: &workorder.CheckRun{}}},
			}
		}, false},
		"a check fails, and there was no time for the proof": {func(_ *workorder.Order, r *workorder.Result) {
			r.Mode, r.Validation = workorder.ModeContinue, []workorder.Validation{{Name: "test"}}
		}, false},
		"cut off in the proof": {func(_ *workorder.Order, r *workorder.Result) {
			r.Mode, r.Proof = workorder.ModeRevise, &workorder.Proof{Head: r.HeadSHA, Checks: []workorder.CheckProof{{Head: &workorder.CheckRun{}}}}
		}, true},
		"checked, and nothing more is asked for": {func(o *workorder.Order, r *workorder.Result) {
			o.NoProof, r.Mode, r.Validation = true, workorder.ModeContinue, []workorder.Validation{{Name: "test"}}
		}, false},
		"no checks, and the agent was done": {func(o *workorder.Order, r *workorder.Result) {
			o.Validate, r.Mode = nil,
				workorder.ModeContinue
		}, false},
		"no checks, and the agent was stopped": {func(o *workorder.Order, r *workorder.Result) {
			o.Validate, r.Mode, r.Status = nil, workorder.ModeContinue, workorder.StatusInterrupted
		}, true},
	} {
		o, _, r := attempts()
		if c.change(o, r); Unchanged(o, r) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// The text on an attempt that proved the branch stays when a later one leaves the branch as it was, with one line on the later one,
// whether the box writes it, who knows of no attempt before, or `pr open`.
func TestLaterAttempt(t *testing.T) {
	t.Parallel()
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app"})
	f.AddUser("runner", forgetest.User{Permission: "write"})
	f.AddToken("tok", "runner")
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	o, first, later := attempts()
	f.SetBranch(first.Branch, forgetest.SHA("x"))
	c, err := setup.New(forge.Config{Remote: o.Repo, APIURL: srv.URL + "/api/v3", Repository: "o/app", Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	body := func() string {
		t.Helper()
		i, _ := f.Issue(1)
		return i.Body
	}
	if pr, _, err := Update(t.Context(), c, o, later); pr != nil || err != nil || len(f.Pulls()) > 0 {
		t.Fatalf("a pull request that says nothing was opened: %+v, %v", pr, err)
	}
	if _, _, err := Open(t.Context(), c, o, first, ReportInput{Order: o, Result: first}); err != nil {
		t.Fatal(err)
	}
	proven := body()
	const line = "\n\nA later attempt (rebase) left the branch as it was: "
	for range 2 { // the line is there once
		if pr, warnings, err := Update(t.Context(), c, o, later); err != nil || pr == nil || pr.Number != 1 || len(warnings) > 0 {
			t.Fatalf("%+v, %q, %v", pr, warnings, err)
		}
		if got := body(); strings.TrimSpace(got) != strings.TrimSpace(proven)+line+later.Reasons.String() {
			t.Errorf("the box wrote\n%s", got)
		}
	}
	later.Reasons = workorder.Because(workorder.ReasonPush, "somebody else pushed @ann")
	told := *first
	told.PR = &workorder.PR{Number: 1}
	if _, _, err := Open(t.Context(), c, o, later, ReportInput{Order: o, Result: &told, Later: later}); err != nil {
		t.Fatal(err)
	}
	if got := body(); !strings.HasPrefix(got, strings.TrimSpace(proven)+line+"somebody else pushed &") ||
		strings.Contains(got, "on main already") {
		t.Errorf("with the attempt before:\n%s", got)
	}
	// Where that is not known here it is as in the box.
	kept := body()
	if _, _, err := Open(t.Context(), c, o, later, ReportInput{Order: o, Result: later}); err != nil ||
		strings.TrimSpace(body()) != strings.TrimSpace(kept) {
		t.Errorf("without the attempt before: %v\n%s", err, body())
	}
	// A body of another commit says nothing of this one, and more than this attempt would.
	later.HeadSHA = strings.Repeat("b2", 20)
	later.Restored.Head = later.HeadSHA
	if _, warnings, err := Update(t.Context(), c, o, later); err != nil || len(warnings) != 1 || body() != kept {
		t.Errorf("of another commit: %q, %v\n%s", warnings, err, body())
	}
}

// Names that an agent chooses are no mark of ours, and what people wrote below a body stays.
func TestMarkOfABody(t *testing.T) {
	t.Parallel()
	o, first, later := attempts()
	mark := bodyMark(o, first)
	first.Proof.Checks[0].Tests = []workorder.TestChange{{Suite: mark, Name: mark, Transition: workorder.TransitionFixed, Text: "x\n" + mark + "\nx"}}
	first.Agent.Final = mark + "\n\n" + mark
	body := Body(ReportInput{Order: o, Result: first})
	if n := strings.Count(body, "\n"+mark+"\n"); n != 1 || !strings.HasSuffix(body, "\n"+mark+"\n") {
		t.Errorf("%d marks in\n%s", n, body)
	}
	const human = "Closes #12\n\nA later attempt is not what this is."
	kept, ok := keeps(o, later)(body + "\n" + human + "\n")
	if want := body + "\nA later attempt (rebase) left the branch as it was: it is on main already\n\n" + human + "\n"; !ok || kept != want {
		t.Errorf("%v, got\n%s\nwant\n%s", ok, kept, want)
	}
	if again, ok := keeps(o, later)(kept); !ok || again != kept {
		t.Errorf("it grows:\n%s", again)
	}
}

// The task of a later attempt is that of the first, whatever its own order says.
func TestAskedOfLaterAttempts(t *testing.T) {
	t.Parallel()
	_, r, _ := attempts()
	r.TaskText.Added = []string{"Also notes"}
	o := &workorder.Order{Task: "Also notes"}
	d := Data(ReportInput{Order: o, Result: r})
	if title := Title(o, r); title != "Do it well" || d.Order.Task != "Do it well" || len(d.Order.Added) != 1 ||
		d.Order.Added[0] != "Also notes" {
		t.Errorf("%q, %+v", title, d.Order)
	}
}
