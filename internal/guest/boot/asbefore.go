package boot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// asBefore lists the checks that fail with the task's commits just as they failed without them, by the tests in the proof's reports.
// It is empty unless that is so of every check that failed: a check without a report on both sides may be worse.
func (b land) asBefore() string {
	p := b.Rec.Result().Proof
	if b.Order.Strict || b.Rebaser != nil || p == nil || p.Head != b.landing.Head {
		return ""
	}
	var said []string
	for i := range b.end.checks {
		v := &b.end.checks[i]
		if v.Passed {
			continue
		}
		c := checkOf(p, v.Name)
		if c == nil || !failsAsBefore(c) {
			return ""
		}
		n := c.Counts[workorder.StillFails]
		said = append(said, fmt.Sprintf("%s: %d %s as before", v.Name, n, map[bool]string{true: "test fails", false: "tests fail"}[n == 1]))
	}
	return strings.Join(said, ", ")
}

// worseEnds are transitions of a test that make a check worse.
var worseEnds = []workorder.Transition{workorder.Broken, workorder.NewFails, workorder.Gone, workorder.NowSkipped, workorder.Flaky, workorder.NotCompared}

// failsAsBefore reports whether a check fails on both sides, and no test of it ends worse on head.
func failsAsBefore(c *workorder.CheckProof) bool {
	return c.Base != nil && !c.Base.Passed && c.Base.Tests != nil && c.Head != nil && !c.Head.Passed && c.Head.Tests != nil &&
		c.Counts[workorder.StillFails] > 0 && c.Head.Tests.Failed <= c.Base.Tests.Failed &&
		!slices.ContainsFunc(worseEnds, func(t workorder.Transition) bool { return c.Counts[t] > 0 })
}
