package report

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// both are the two forms of a report.
func both(t *testing.T, d Data) map[string]string {
	t.Helper()
	var page strings.Builder
	if err := HTML(d, &page); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"Markdown": Markdown(d), "HTML": page.String()}
}

// Both forms say what was asked first, and beneath it what was added.
func TestAsked(t *testing.T) {
	t.Parallel()
	d := success()
	d.Order.Task, d.Order.Added = "Do it well", []string{"Also notes\n</blockquote>", "\n", "And more"}
	for form, text := range both(t, d) {
		at := -1
		for _, want := range []string{"Do it well", "Added later", "Also notes", "Added later", "And more", "Proof"} {
			i := strings.Index(text[at+1:], want)
			if i < 0 {
				t.Fatalf("%s: no %q after %d in\n%s", form, want, at, text)
			}
			at += 1 + i
		}
		if form == "Markdown" {
			safeMarkdown(t, text)
		} else {
			safeHTML(t, text)
		}
	}
	d.Order.Task = ""
	for range inMarkdown.inner {
		d.Order.Added = append(d.Order.Added, strings.Repeat("long ", 1000))
	}
	if s := Markdown(d); !strings.Contains(s, "**Added later:**") || strings.Contains(s, "Also notes") {
		t.Errorf("the newest are shown:\n%.2000s", s)
	}
}

// A report never tells of an agent that did not run, and says of a later attempt that it left the branch as it was.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	d := nothing()
	d.Result.Steps = []workorder.Step{{Name: "agent", Status: workorder.StepSkipped}}
	d.Result.Restored = &workorder.Restored{Head: d.Result.HeadSHA}
	d.Result.Validation, d.Result.Commits = nil, []workorder.Commit{{SHA: head}}
	for form, text := range both(t, d) {
		if strings.Contains(text, "agent ended") || strings.Contains(text, "nothing was proven") ||
			!strings.Contains(text, "No agent ran. The branch is as it was.") {
			t.Errorf("%s:\n%s", form, text)
		}
	}
	d = success()
	d.Later = &workorder.Result{
		Mode: workorder.ModeRebase, Status: workorder.StatusFailed,
		Reasons: workorder.Because(workorder.ReasonWorse, "it does not hold <b> @ann"),
	}
	for form, text := range both(t, d) {
		if !strings.Contains(text, "A later attempt (rebase) left the branch as it was: it does not hold &lt;b") ||
			!strings.Contains(text, "2 checks pass") {
			t.Errorf("%s:\n%s", form, text)
		}
	}
	safeMarkdown(t, Markdown(d))
	if s := LaterLine(&workorder.Result{Mode: workorder.ModeContinue, Status: workorder.StatusParked}); !strings.Contains(s,
		"(continue) left the branch as it was: it ended with the status parked") {
		t.Error(s)
	}
}
