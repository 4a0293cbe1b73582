package render_test

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSummaryOfFeedback(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	render.Summary(&b, &workorder.Result{Status: workorder.StatusSuccess, Review: []workorder.ReviewAnswer{
		{Answer: workorder.AnsweredByCommit, Resolved: true}, {Answer: workorder.AnsweredByReason}, {Answer: workorder.NotCommanded}, {Answer: workorder.AnsweredByCommit},
	}}, render.SummaryOptions{})
	if want := "2 addressed, 1 left with a reason, 1 only quoted, 1 resolved"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}
