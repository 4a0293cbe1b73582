package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// proof has the runner's findings on both commits or on one.
type proof struct {
	Both       bool // base and head were compared
	Base, Head string
	Reason     string
	None       string // what it means that there are no checks
	Checks     list[check]
}

type check struct {
	Name, Command string
	Base, Head    side
	Change        string
	Tone          tone
	Tests         list[test]
	// Sum counts the changed tests by transition.
	Sum  string
	Log  string
	Tail string // the end of the output, where it failed
}

// side is a check's ending at one commit.
type side struct {
	Ran    bool
	Passed bool
	Text   string
	Took   string
	URL    string // of its log
}

type test struct {
	Name, Suite, Change, Text string
	Tone                      tone
}

// changes are the transitions, the worst first, in words.
var changes = []struct {
	is   workorder.Transition
	word string // of one check or test
	many string // in "3 ..."
	tone tone
}{
	{workorder.TransitionBroken, "passed, now fails", "broken", bad},
	{workorder.TransitionNewFails, "new, fails", "new and failing", bad},
	{workorder.TransitionDeleted, "deleted", "deleted", warn},
	{workorder.TransitionSkipped, "skipped", "skipped", warn},
	{workorder.TransitionFlaky, "flaky", "flaky", warn},
	{workorder.TransitionStillFails, "fails as before", "failing as before", warn},
	{workorder.TransitionFixed, "failed, now passes", "fixed", good},
	{workorder.TransitionNewPasses, "new, passes", "new", good},
	{workorder.TransitionStillPasses, "passes as before", "passing as before", calm},
	{workorder.TransitionNotCompared, "not compared", "not compared", calm},
}

func told(t workorder.Transition) (word string, tn tone) {
	for _, c := range changes {
		if c.is == t {
			return c.word, c.tone
		}
	}
	return line(string(t), 40), warn
}

func (p *page) proof(d Data, r *workorder.Result, b bounds) {
	ran := func(c *workorder.CheckRun) side {
		s := ran(c)
		if c != nil {
			s.URL = d.evidence(c.Log)
		}
		return s
	}
	ends := map[string]workorder.Validation{}
	for _, v := range r.Validation {
		ends[v.Name] = v
	}
	p.Proof.None = "No check was run, so nothing was proven."
	if x := r.Restored; x != nil && r.HeadSHA != "" && r.HeadSHA == x.Head {
		p.Proof.None = "This attempt left the branch as it was and ran no check."
	}
	if r.Proof == nil {
		p.Proof.Checks = firsts(r.Validation, b.items, func(v workorder.Validation) check { return validated(d, v, b) })
		return
	}
	p.Proof.Both = true
	p.Proof.Base, p.Proof.Head = line(r.Proof.Base, 64), line(r.Proof.Head, 64)
	p.Proof.Reason = line(r.Proof.Reasons.String(), b.line*2)
	for _, c := range r.Proof.Checks[:min(len(r.Proof.Checks), b.items)] {
		if c.BaseTests != nil {
			p.Before = append(p.Before, check{Name: line(c.Name, b.line), Head: ran(c.BaseTests)})
		}
	}
	p.Proof.Checks = firsts(r.Proof.Checks, b.items, func(c workorder.CheckProof) check {
		out := check{Name: line(c.Name, b.line), Command: line(c.Command, b.line*2), Base: ran(c.Base), Head: ran(c.Head)}
		out.Change, out.Tone = told(c.Transition)
		out.Sum = sum(c.Counts)
		if v, ok := ends[c.Name]; ok && !out.Head.Passed {
			out.Tail = tail(v.Tail, b.text)
		}
		if c.Head != nil {
			out.Log = line(c.Head.Log, b.line)
		}
		tests := slices.Clone(c.Tests)
		slices.SortStableFunc(tests, func(x, y workorder.TestChange) int { return rankOf(x.Transition) - rankOf(y.Transition) })
		out.Tests = firsts(tests, b.inner, func(t workorder.TestChange) test {
			text, _ := block(t.Text, b.text/4)
			o := test{Name: line(t.Name, b.line), Suite: line(t.Suite, b.line), Text: text}
			o.Change, o.Tone = told(t.Transition)
			return o
		})
		return out
	})
}

// rankOf returns the position of a transition, the worst first.
func rankOf(t workorder.Transition) int {
	for i, c := range changes {
		if c.is == t {
			return i
		}
	}
	return -1
}

// validated is a check with a known ending at head only.
func validated(d Data, v workorder.Validation, b bounds) check {
	c := check{Name: line(v.Name, b.line), Command: line(v.Command, b.line*2), Log: line(v.Log, b.line), Change: "not compared", Tone: calm}
	c.Head = ran(&workorder.CheckRun{ExitCode: v.ExitCode, Passed: v.Passed, DurationMS: v.DurationMS})
	c.Head.URL = d.evidence(v.Log)
	if !v.Passed {
		c.Tail, c.Tone = tail(v.Tail, b.text), bad
	}
	return c
}

func ran(r *workorder.CheckRun) side {
	if r == nil {
		return side{Text: "not run"}
	}
	s := side{Ran: true, Passed: r.Passed, Took: took(r.DurationMS)}
	switch {
	case r.Tests != nil:
		var parts []string
		for _, n := range []struct {
			n    int
			word string
		}{{r.Tests.Failed, "failed"}, {r.Tests.Passed, "passed"}, {r.Tests.Skipped, "skipped"}} {
			if n.n > 0 {
				parts = append(parts, number(int64(n.n))+" "+n.word)
			}
		}
		if s.Text = strings.Join(parts, ", "); s.Text == "" {
			s.Text = "no tests"
		}
		if !r.Passed && r.Tests.Failed == 0 {
			s.Text += fmt.Sprintf(", exit code %d", r.ExitCode)
		}
	case r.Passed:
		s.Text = "passed"
	default:
		s.Text = fmt.Sprintf("exit code %d", r.ExitCode)
	}
	return s
}

// sum describes how many tests changed, the worst transition first.
func sum(counts map[workorder.Transition]int) string {
	var parts []string
	for _, c := range changes {
		if n := counts[c.is]; n > 0 && c.is != workorder.TransitionStillPasses && c.is != workorder.TransitionNotCompared {
			parts = append(parts, number(int64(n))+" "+c.many)
		}
	}
	if n := counts[workorder.TransitionStillPasses]; n > 0 && len(parts) == 0 {
		return "no test changed"
	}
	return strings.Join(parts, ", ")
}

// tally counts the checks by how they ended at head, and the tests by transition.
func tally(r *workorder.Result) (passed, all int, tests map[workorder.Transition]int) {
	tests = map[workorder.Transition]int{}
	if r.Proof == nil {
		for _, v := range r.Validation {
			if all++; v.Passed {
				passed++
			}
		}
		return passed, all, tests
	}
	for _, c := range r.Proof.Checks {
		if all++; c.Head != nil && c.Head.Passed {
			passed++
		}
		for t, n := range c.Counts {
			tests[t] += n
		}
	}
	return passed, all, tests
}
