package testreport

import (
	"cmp"
	"slices"
	"strings"

	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type testKey struct{ suite, name string }

// testOutcome is one test in all runs of a side.
type testOutcome struct {
	status workorder.TestStatus // of the last run; "" when it was not in it
	text   string
	flaky  bool
	whole  bool
	runs   int
}

// ranks orders transitions, the worst first.
var ranks = []workorder.Transition{
	workorder.TransitionBroken, workorder.TransitionNewFails, workorder.TransitionDeleted, workorder.TransitionSkipped,
	workorder.TransitionFlaky,
	workorder.TransitionStillFails, workorder.TransitionFixed, workorder.TransitionNewPasses, workorder.TransitionNotCompared,
}

// Compare compares the runs of two commits; several reports of a side are repeats of the same command, the last of
// which counts. changes are those that are not TransitionStillPasses, the worst first, at most MaxTestChanges; counts
// has all. Tests that are skipped on both sides are in neither. A side without reports makes all tests
// TransitionNotCompared; failures on head are named.
func Compare(base, head []*Report) (changes []workorder.TestChange, counts map[workorder.Transition]int) {
	counts = map[workorder.Transition]int{}
	base, head = steady(base, head)
	b, h := side(base), side(head)
	one := len(b) == 0 && !ran(base) || len(h) == 0 && !ran(head)
	if !one {
		move(b, h)
		standIn(b, h)
		standIn(h, b)
	}
	keys := make(map[testKey]bool, len(b)+len(h))
	for k := range b {
		keys[k] = true
	}
	for k := range h {
		keys[k] = true
	}
	for k := range keys {
		t := transition(b[k], h[k])
		if one {
			t = workorder.TransitionNotCompared
		} else if t == workorder.TransitionNotCompared {
			continue
		}
		counts[t]++
		if t == workorder.TransitionStillPasses || one && (h[k] == nil || h[k].status != workorder.TestFailed) {
			continue
		}
		c := workorder.TestChange{Suite: k.suite, Name: k.name, Transition: t}
		if now := h[k]; now != nil && (now.status == workorder.TestFailed || t == workorder.TransitionFlaky) {
			c.Text = now.text
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b workorder.TestChange) int {
		return cmp.Or(
			cmp.Compare(slices.Index(ranks, a.Transition), slices.Index(ranks, b.Transition)),
			strings.Compare(a.Suite, b.Suite), strings.Compare(a.Name, b.Name))
	})
	return changes[:min(len(changes), workorder.MaxTestChanges)], counts
}

func ran(reps []*Report) bool {
	return slices.ContainsFunc(reps, func(r *Report) bool { return r != nil })
}

// side joins the repeats of one commit.
func side(reps []*Report) map[testKey]*testOutcome {
	all := map[testKey]*testOutcome{}
	runs := 0
	for _, r := range reps {
		if r == nil {
			continue
		}
		runs++
		for _, t := range r.Tests {
			k := testKey{t.Suite, t.Name}
			s := all[k]
			if s == nil {
				s = &testOutcome{}
				all[k] = s
			}
			// A test that was missing in an earlier run differs as well.
			s.flaky = s.flaky || t.Flaky || s.runs > 0 && s.status != t.Status || s.runs != runs-1 && !t.Whole
			s.runs++
			s.status, s.whole = t.Status, t.Whole
			if t.Text != "" {
				s.text = t.Text
			}
		}
	}
	for _, s := range all {
		if s.runs < runs { // missing in some run
			s.flaky = true
		}
	}
	return all
}

func transition(b, h *testOutcome) workorder.Transition {
	if b != nil && b.flaky || h != nil && h.flaky {
		return workorder.TransitionFlaky
	}
	const none = workorder.TestStatus("")
	was, is := none, none
	if b != nil {
		was = b.status
	}
	if h != nil {
		is = h.status
	}
	switch is {
	case none:
		return workorder.TransitionDeleted
	case workorder.TestSkipped:
		if was == workorder.TestSkipped {
			return workorder.TransitionNotCompared
		}
		return workorder.TransitionSkipped
	case workorder.TestPassed:
		switch was {
		case none:
			return workorder.TransitionNewPasses
		case workorder.TestPassed:
			return workorder.TransitionStillPasses
		}
		return workorder.TransitionFixed
	}
	switch was {
	case workorder.TestPassed:
		return workorder.TransitionBroken
	case workorder.TestFailed:
		return workorder.TransitionStillFails
	}
	return workorder.TransitionNewFails // it did not run before
}

// standIn gives the failure of a suite to its tests that are missing on that side: they were not deleted.
func standIn(from, to map[testKey]*testOutcome) {
	whole := map[string]*testOutcome{}
	for k, s := range to {
		switch {
		case s.status != workorder.TestFailed:
		case s.whole:
			whole[k.suite] = s
		case from[k] == nil: // a file or group that fails where its tests should be
			whole[strings.TrimPrefix(k.suite+" > "+k.name, " > ")] = s
		}
	}
	for k := range from { // sub-tests of Go, whose parent failed before it came to them
		for i := strings.LastIndexByte(k.name, '/'); i > 0 && to[k] == nil; i = strings.LastIndexByte(k.name[:i], '/') {
			if p := to[testKey{k.suite, k.name[:i]}]; p != nil && p.status == workorder.TestFailed && p.text != "" {
				to[k] = &testOutcome{status: workorder.TestFailed, text: texts.Short("not run: "+p.text, textBytes)}
			}
		}
	}
	if len(whole) == 0 {
		return
	}
	known := map[string]bool{}
	for k, s := range from {
		w := covering(whole, k.suite)
		if w == nil || s.whole {
			continue
		}
		known[k.suite] = true
		if to[k] == nil {
			to[k] = &testOutcome{status: workorder.TestFailed, text: texts.Short("not run: "+w.text, textBytes)}
		}
	}
	// The suite did not fail as a whole if its tests ran.
	for k, s := range to {
		if s.whole && from[k] == nil && known[k.suite] {
			from[k] = &testOutcome{status: workorder.TestPassed}
		}
	}
}

// covering returns the failure of a suite, or of its module, group or run.
func covering(whole map[string]*testOutcome, suite string) *testOutcome {
	for s := suite; ; {
		if w := whole[s]; w != nil {
			return w
		}
		i := max(strings.LastIndex(s, " > "), strings.LastIndexByte(s, '.'))
		if i < 0 {
			return whole[""]
		}
		s = s[:i]
	}
}

// FailedIn returns the tests that failed in a run but not on head; their transition compares the run with base.
func FailedIn(run *Report, base, head []*Report) []workorder.TestChange {
	changes, _ := Compare(base, []*Report{run})
	known := side(head)
	return slices.DeleteFunc(changes, func(c workorder.TestChange) bool {
		switch c.Transition {
		case workorder.TransitionBroken, workorder.TransitionNewFails, workorder.TransitionStillFails, workorder.TransitionNotCompared:
			h := known[testKey{c.Suite, c.Name}]
			return h != nil && h.status == workorder.TestFailed
		}
		return true
	})
}
