package pullrequest

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/report"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ReportInput is what a report tells of.
type ReportInput struct {
	Order  *workorder.Order
	Result *workorder.Result
	// Later is a later attempt that left the branch as Result's did; nil means there is none, or none is known.
	Later *workorder.Result
}

// Unchanged reports whether an attempt left the branch unchanged and learned less about it than an attempt with a proof.
// The report on the branch then stays that of the earlier attempt. A failing check counts as learned.
func Unchanged(o *workorder.Order, r *workorder.Result) bool {
	if r.Restored == nil || r.HeadSHA == "" || r.HeadSHA != r.Restored.Head || len(r.Commits) == 0 {
		return false
	}
	if r.Mode == workorder.ModeRebase {
		return true // what it checked, if anything, did not become the branch's
	}
	return !ProvesHead(o, r) && !slices.ContainsFunc(r.Validation, func(v workorder.Validation) bool { return !v.Passed })
}

// ProvesHead reports whether an attempt proved the commit that it ended with.
func ProvesHead(o *workorder.Order, r *workorder.Result) bool {
	switch {
	case len(o.Validate) == 0 && (o.NoProof || o.Dev == nil):
		return Ended(r) // there is nothing to prove it with
	case o.NoProof:
		return len(r.Validation) > 0
	}
	p := r.Proof
	return p != nil && p.Head == r.HeadSHA && !slices.ContainsFunc(p.Checks,
		func(c workorder.CheckProof) bool { return c.Head == nil || c.Base == nil })
}

// bodyMark is the hidden line that says of which commit a body tells. The text after it is about later attempts.
func bodyMark(o *workorder.Order, r *workorder.Result) string {
	return forge.Mark(o.TaskID + "/body-" + r.HeadSHA)
}

// keeps is what becomes of a body that is on the forge when an attempt left the branch as it was: our line about
// a later attempt is a new one, and what people wrote below stays. Only a line of its own is our mark: what
// a report quotes is never at the begin of one.
func keeps(o *workorder.Order, r *workorder.Result) func(body string) (string, bool) {
	return func(body string) (string, bool) {
		mark := bodyMark(o, r)
		lines := strings.Split(body, "\n")
		at := -1
		for i, l := range lines {
			if l == mark {
				at = i
			}
		}
		if at < 0 {
			return "", false
		}
		kept := strings.Join(lines[:at+1], "\n") + "\n\n" + report.LaterLine(r)
		if below := strings.Trim(report.WithoutLater(lines[at+1:]), "\n"); below != "" {
			kept += "\n" + below + "\n"
		}
		return kept, true
	}
}
