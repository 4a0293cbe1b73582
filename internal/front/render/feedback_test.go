package render_test

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSummaryOfFeedback(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	render.Summary(&b, &workorder.Result{Status: workorder.StatusSuccess, Review: []workorder.ReviewAnswer{
		{Answer: workorder.AnswerCommit, Resolved: true}, {Answer: workorder.AnswerReason}, {Answer: workorder.AnswerQuoted}, {Answer: workorder.AnswerCommit},
	}}, render.SummaryOptions{})
	if want := "2 addressed, 1 left with a reason, 1 only quoted, 1 resolved"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}

// A run is not simply a success where the agent passed over what it was asked for.
func TestSummaryOfUnaddressed(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	render.Summary(&b, &workorder.Result{Status: workorder.StatusSuccess, TaskID: "T-1", Review: []workorder.ReviewAnswer{
		{Answer: workorder.AnswerCommit}, {Answer: workorder.AnswerNone}, {Answer: workorder.AnswerQuoted},
	}}, render.SummaryOptions{})
	if want := "! success, 1 of 2 items not addressed T-1"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}
