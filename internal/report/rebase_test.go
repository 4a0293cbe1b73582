package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func hostileRebase(n int) *workorder.Rebased {
	r := &workorder.Rebased{
		Onto: "main", OldBase: strings.Repeat("a", 40), NewBase: strings.Repeat("b", 40),
		Backup: "refs/sandbox-agent/T-A1B2C3D4/heads/before-rebase-2", Pushed: true,
		Conflicts: []string{"a`b|c</code><script>"}, Text: "1:  abc ! 1:  def </pre><script>alert(1)</script> @ann #12\n" +
			strings.Repeat("    <@x>\n", n),
	}
	for range n {
		r.Moved = append(r.Moved, workorder.RangePair{
			Old: strings.Repeat("c", 40), New: strings.Repeat("d", 40),
			Subject: "x | y\n| @ann closes #1 <img src=x> ![a](http://x)", How: workorder.RangeChanged, Reason: "conflict in <b>",
		})
	}
	return r
}

func TestRangeDiffComment(t *testing.T) {
	t.Parallel()
	got := RangeDiff(hostileRebase(1))
	for _, not := range []string{"<script", "@ann", "#1 ", "<img", "](http", "</pre><"} {
		if strings.Contains(got, not) {
			t.Errorf("it has %q:\n%s", not, got)
		}
	}
	for _, want := range []string{
		"onto main, from base", "| Before | After |", "| changed |", "<details>", "before-rebase-2",
		"conflict in &lt;b&gt;", "1 changed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it has no %q:\n%s", want, got)
		}
	}
	if row := strings.Split(got, "\n"); strings.Count(strings.Join(row, "\n"), "\n| <code>") != 1 {
		t.Errorf("a subject makes rows:\n%s", got)
	}
	if got := RangeDiff(hostileRebase(20_000)); len(got) > maxMarkdown || !strings.Contains(got, "more, see the report") {
		t.Errorf("%d bytes", len(got))
	}
}

func TestReportOfARebase(t *testing.T) {
	t.Parallel()
	r := &workorder.Result{TaskID: "T-A1B2C3D4", Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation, Rebased: hostileRebase(2)}
	r.Rebased.Pushed, r.Rebased.Kept = false, "refs/sandbox-agent/T-A1B2C3D4/heads/rebased-2"
	var b bytes.Buffer
	if err := HTML(Data{Result: r}, &b); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{b.String(), Markdown(Data{Result: r})} {
		if !strings.Contains(text, "was not moved onto main") || !strings.Contains(text, "rebased-2") || strings.Contains(text, "<script>alert") {
			t.Error(text)
		}
	}
}
