package report

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func proven() *workorder.Result {
	return &workorder.Result{
		Status: workorder.StatusSuccess, HeadSHA: "h1", Proof: &workorder.Proof{
			Head: "h1", Checks: []workorder.CheckProof{
				{Name: "test", Head: &workorder.CheckRun{Passed: true}},
				{Name: "lint", Head: &workorder.CheckRun{Passed: true}},
			},
			TestFindings: []workorder.TestFinding{{Kind: workorder.FindingNothingProven}},
		},
	}
}

// A thread may be closed only on what the runner itself found out, and all of it must be good.
func TestEvidence(t *testing.T) {
	t.Parallel()
	if green, says := Evidence(proven()); !green || !strings.Contains(says, "`test`, `lint`") {
		t.Errorf("%v, %s", green, says)
	}
	edited := proven()
	edited.Proof.TestFindings = []workorder.TestFinding{{Kind: workorder.FindingTestEdited, Path: "a_test.go"}}
	if green, says := Evidence(edited); !green {
		t.Errorf("an edited test alone: %s", says)
	}
	for want, spoil := range map[string]func(*workorder.Result){
		"The project has no checks": func(r *workorder.Result) { r.Proof = nil },
		"not run in a clean checkout": func(r *workorder.Result) {
			r.Proof, r.Validation = nil,
				[]workorder.Validation{{Passed: true}}
		},
		"has no checks":                           func(r *workorder.Result) { r.Proof.Checks = nil },
		"on another commit":                       func(r *workorder.Result) { r.HeadSHA = "h2" },
		"do not pass: `lint`.":                    func(r *workorder.Result) { r.Proof.Checks[1].Head.Passed = false },
		"do not pass: `test`.":                    func(r *workorder.Result) { r.Proof.Checks[0].Head = nil },
		"at another, at the same commit: `lint`.": func(r *workorder.Result) { r.Proof.Checks[1].Transition = workorder.TransitionFlaky },
		"at another, at the same commit: `test`.": func(r *workorder.Result) {
			r.Proof.Checks[0].Counts = map[workorder.Transition]int{workorder.TransitionFlaky: 1}
		},
		"test deleted":             func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingTestDeleted },
		"test skipped":             func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingTestSkipped },
		"base's tests fail":        func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingBaseTests },
		"test report missing":      func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingReportMissing },
		"test weakened":            func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingTestWeakened },
		"check itself edited":      func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingCheckEdited },
		"hard-coded":               func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingHardCoded },
		"passed before, fails now": func(r *workorder.Result) { r.Proof.TestFindings[0].Kind = workorder.FindingBrokenOnHead },
		"not all of it could be looked at: base was not run": func(r *workorder.Result) {
			r.Proof.Reasons = workorder.Because(workorder.ReasonNoTime, "base was not run")
		},
		"the status `failed`": func(r *workorder.Result) { r.Status = workorder.StatusFailed },
	} {
		r := proven()
		spoil(r)
		if green, says := Evidence(r); green || !strings.Contains(says, want) {
			t.Errorf("%v, %q, not %q", green, says, want)
		}
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	sha := strings.Repeat("ab", 20)
	url := func(sha string) string { return "https://github.example/o/r/commit/" + sha }
	for _, c := range []struct {
		a    workorder.ReviewAnswer
		url  func(string) string
		want string
	}{
		{workorder.ReviewAnswer{Commits: []string{sha}}, nil, "Addressed in " + sha + ". Checks that pass on the last commit: `test`, `lint`.\n"},
		{workorder.ReviewAnswer{Commits: []string{sha}}, url, `Addressed in <a href="https://github.example/o/r/commit/` + sha +
			`"><code>abababa</code></a>. Checks`},
		{
			workorder.ReviewAnswer{Reason: "Not needed, @ann: see #12"},
			nil,
			"Left as it is.\n\nThe agent's own words:\n\n> Not needed, &#x40;&#x200b;ann: see &#x23;&#x200b;12\n",
		},
		{workorder.ReviewAnswer{}, nil, "Not addressed"},
	} {
		if got := Reply(&c.a, proven(), c.url); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
	all := Replies([]workorder.ReviewAnswer{
		{Number: 2, Text: "Rename it", URL: "https://github.example/c", Commits: []string{sha}},
		{Number: 4, Text: "And why?", Reason: "Because."},
	}, proven(), nil)
	for _, want := range []string{"`test`, `lint`", "**2.** <a href=\"https://github.example/c\">“Rename it”</a>\n\nAddressed in " +
		sha, "**4.** “And why?”\n\nLeft as it is.", "> Because."} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// The section says of each item what became of it, in both forms.
func TestFeedbackSection(t *testing.T) {
	t.Parallel()
	r := proven()
	r.Review = []workorder.ReviewAnswer{
		{
			Number: 1, Source: workorder.ReviewFromThread, Path: "a.go", Line: 7, Text: "Off by one", Answer: workorder.AnswerCommit,
			Commits: []string{strings.Repeat("ab", 20)}, Replied: true, Resolved: true,
		},
		{Number: 2, Source: workorder.ReviewFromThread, Text: "Why?", Answer: workorder.AnswerReason, Reason: "It is needed."},
		{Number: 3, Source: workorder.ReviewFromComment, Text: "Do evil", Answer: workorder.AnswerQuoted},
	}
	d := Data{Result: r}
	body := Markdown(d)
	for _, want := range []string{
		"### Feedback", "| 1 | `a.go:7` Off by one | ✅ addressed in <code>abababa</code> (resolved) |",
		"left as it is, with a reason. The agent says: It is needed. (not told there yet) |",
		"| 3 | Do evil | ➖ only quoted: its author may not command |",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	var page strings.Builder
	if err := HTML(d, &page); err != nil || !strings.Contains(page.String(), "<h2>Feedback</h2>") || !strings.Contains(page.String(),
		"<small>resolved</small>") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// Items that were not addressed are in the headline, before green checks.
func TestUnaddressed(t *testing.T) {
	t.Parallel()
	r := proven()
	r.Proof.TestFindings = nil
	r.Review = []workorder.ReviewAnswer{
		{Number: 1, Answer: workorder.AnswerReason},
		{Number: 2, Answer: workorder.AnswerNone},
		{Number: 3, Answer: workorder.AnswerQuoted},
	}
	for form, text := range both(t, Data{Result: r}) {
		if !strings.Contains(text, "Done in part") || !strings.Contains(text, "1 of 2 items not addressed. 2 checks pass.") ||
			strings.Contains(text, "✅ Done") || strings.Contains(text, `class="outcome good"`) {
			t.Errorf("%s:\n%s", form, text)
		}
	}
	if r.Review[1].Answer = workorder.AnswerCommit; !strings.Contains(Markdown(Data{Result: r}), "**✅ Done.** 2 checks pass.") {
		t.Error("all is addressed")
	}
	r.Review[1].Answer, r.Status, r.Proof = workorder.AnswerNone, workorder.StatusNoChanges, nil
	if s := Markdown(Data{Result: r}); !strings.Contains(s, "**⚠️ Nothing changed.** 1 of 2 items not addressed.") {
		t.Error(s)
	}
}
