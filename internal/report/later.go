package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxLater bounds the reason of a later attempt, in characters.
const maxLater = 480

// later describes in one line a later attempt that left the branch unchanged.
func later(r *workorder.Result) string {
	if r == nil {
		return ""
	}
	mode := cmp.Or(line(string(r.Mode), 20), "unknown")
	why := cmp.Or(line(r.Reasons.String(), maxLater), "it ended with the status "+line(string(r.Status), 30))
	return laterStart + mode + laterMiddle + why
}

const (
	laterStart  = "A later attempt ("
	laterMiddle = ") left the branch as it was: "
)

// WithoutLater joins the lines of a text that LaterLine did not make.
func WithoutLater(lines []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return strings.HasPrefix(l, laterStart) && strings.Contains(l, laterMiddle)
	}), "\n")
}

// LaterLine returns that line as Markdown, to be appended to a body.
func LaterLine(r *workorder.Result) string { return esc(later(r)) + "\n" }

// noAgent reports whether certainly no agent ran.
func noAgent(r *workorder.Result) bool {
	s := r.Step(workorder.StepAgent)
	return s != nil && s.Status == workorder.StepSkipped
}
