package proof

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// shownText bounds one name or text in the proof, in bytes; its sources have smaller bounds.
const shownText = 2000

// clearCacheTime bounds clearing a cache of test results, which writes one file.
const clearCacheTime = 10 * time.Second

// doubtful returns the checks to repeat: those that differ, on both sides, and those that fail on head, there.
func (r *run) doubtful() (lists [2][]*check) {
	for _, c := range r.checks {
		b, h := c.base.last(), c.head.last()
		if h == nil {
			continue
		}
		differs := b != nil && r.differ(c)
		if differs {
			lists[0] = append(lists[0], c)
		}
		if differs || !h.Passed || h.Tests != nil && h.Tests.Failed > 0 {
			lists[1] = append(lists[1], c)
		}
	}
	return lists
}

// differ reports whether a check or any of its tests ends differently on head than on base.
func (r *run) differ(c *check) bool {
	if c.base.last().Passed != c.head.last().Passed {
		return true
	}
	_, counts := testreport.Compare(c.base.reports, c.head.reports)
	for t, n := range counts {
		if n > 0 && t != workorder.TransitionStillPasses && t != workorder.TransitionStillFails && t != workorder.TransitionNotCompared {
			return true
		}
	}
	return false
}

// repeat runs checks of a side once more, if at least the time that they took is left.
func (r *run) repeat(ctx context.Context, s *side, list []*check) {
	if len(list) == 0 || !s.ready {
		return
	}
	r.forgetResults(ctx, s)
	for i, c := range list {
		last := c.of(s).last()
		if last == nil {
			continue
		}
		if took := time.Duration(last.DurationMS) * time.Millisecond; remaining(ctx) < took {
			r.warn(
				"%s was not repeated on %s: it takes %s, and %s are left; a flaky test would not be noticed", c.Name, s.name, round(took),
				round(max(0, remaining(ctx))),
			)
			continue
		}
		r.check(ctx, s, c, len(list)-1-i, again)
	}
}

// forgetResults makes go rerun tests that it has cached as passed.
func (r *run) forgetResults(ctx context.Context, s *side) {
	ctx, cancel := context.WithTimeout(ctx, clearCacheTime)
	defer cancel()
	// Without go there is nothing to clear, and a failure only costs one repetition.
	_ = proc.Run(
		ctx, proc.Spec{Argv: []string{"go", "clean", "-testcache"}, Dir: s.home, Env: append(r.env(s), "GOTOOLCHAIN=local"), User: s.user},
	)
}

func (r *run) judge() {
	var changes []workorder.TestChange
	for _, c := range r.checks {
		p := r.checkProof(c)
		r.judgeBaseTests(c, &p)
		changes = append(changes, p.Tests...)
		r.proof.Checks = append(r.proof.Checks, p)
		if p.Transition == workorder.TransitionBroken {
			r.flag(workorder.FindingBrokenOnHead, fmt.Sprintf("check %q passed on base and fails on head (exit %d)", c.Name, p.Head.ExitCode))
		}
		if n := deaf(p.Head); n > 0 && deaf(p.Base) == 0 {
			r.flag(
				workorder.FindingCheckEdited, fmt.Sprintf("check %q passes on head although its report has %d failed tests, unlike on base", c.Name, n),
			)
		}
		if p.Base != nil && p.Base.Tests != nil && p.Head != nil && p.Head.Passed && p.Head.Tests == nil {
			r.flag(workorder.FindingReportMissing, fmt.Sprintf("check %q passes on head and leaves no test report, which it did on base", c.Name))
		}
	}
	r.proof.Pages = pages(r.base.views, r.head.views)
	if r.base.ready && r.head.setupFailed != "" {
		r.flag(workorder.FindingBrokenOnHead, "setup passed on base and fails on head: "+r.head.setupFailed)
	}
	r.proof.TestFindings = slices.Concat(r.proof.TestFindings, r.edited.Flags, testreport.Reported(changes))
	if text := r.unproven(); text != "" {
		r.flag(workorder.FindingNothingProven, text)
	}
	testreport.SortFlags(r.proof.TestFindings)
	for i := range r.proof.TestFindings {
		f := &r.proof.TestFindings[i]
		f.Path, f.Text = r.shown(f.Path, shownText), r.shown(f.Text, shownText)
	}
	left := maxReason
	for _, why := range r.reasons {
		if left <= 0 {
			break
		}
		why.Detail = r.shown(why.Detail, left)
		left -= len(why.Detail)
		r.proof.Reasons = append(r.proof.Reasons, why)
	}
}

// deaf returns the number of failed tests despite which a check passes.
func deaf(c *workorder.CheckRun) int {
	if c == nil || !c.Passed || c.Tests == nil {
		return 0
	}
	return c.Tests.Failed
}

func (r *run) flag(kind, text string) {
	r.proof.TestFindings = append(r.proof.TestFindings, workorder.TestFinding{Kind: kind, Text: text})
}

func (r *run) checkProof(c *check) workorder.CheckProof {
	p := workorder.CheckProof{
		Name: r.shown(c.Name, shownText), Command: r.Redact.String(c.Run),
		Base: c.base.last(), Head: c.head.last(), Transition: transition(&c.base, &c.head), BaseVaries: varies(&c.base),
	}
	p.Tests, p.Counts = testreport.Compare(c.base.reports, c.head.reports)
	if p.Tests == nil {
		p.Tests = []workorder.TestChange{}
	}
	r.clean(p.Tests)
	for _, rep := range slices.Concat(c.base.reports, c.head.reports) {
		if rep != nil {
			p.Report = string(rep.Format)
		}
	}
	return p
}

// clean makes names and texts of tests, which come from an agent or its tests, fit to show.
func (r *run) clean(tests []workorder.TestChange) {
	for i := range tests {
		t := &tests[i]
		t.Suite, t.Name, t.Text = r.shown(t.Suite, shownText), r.shown(t.Name, shownText), r.shown(t.Text, shownText)
	}
}

func transition(base, head *runs) workorder.Transition {
	if varies(base) || varies(head) {
		return workorder.TransitionFlaky
	}
	b, h := base.last(), head.last()
	switch {
	case b == nil || h == nil:
		return workorder.TransitionNotCompared
	case b.Passed && h.Passed:
		return workorder.TransitionStillPasses
	case h.Passed:
		return workorder.TransitionFixed
	case b.Passed:
		return workorder.TransitionBroken
	}
	return workorder.TransitionStillFails
}

func varies(r *runs) bool {
	return slices.ContainsFunc(r.done, func(c workorder.CheckRun) bool { return c.Passed != r.done[0].Passed })
}

// unproven explains why nothing was proven; empty if a check or a test ends differently on head than on base.
func (r *run) unproven() string {
	compared := false
	for _, p := range r.proof.Checks {
		if p.Transition == workorder.TransitionFixed || p.Transition == workorder.TransitionBroken {
			return ""
		}
		for _, t := range []workorder.Transition{
			workorder.TransitionFixed, workorder.TransitionBroken, workorder.TransitionNewPasses,
			workorder.TransitionNewFails,
		} {
			if p.Counts[t] > 0 {
				return ""
			}
		}
		compared = compared || p.Base != nil && p.Head != nil
	}
	switch {
	case len(r.proof.LeftOut) > 0 && len(r.checks) == 0:
		return "no check that was found in the repository can run"
	case len(r.checks) == 0:
		return "the project has no validate commands: no check was run"
	case !compared:
		return "no check could be run on both base and head: " + r.reasons.String()
	}
	return "no check and no test ends differently on head than on base: nothing shows the effect of the change"
}
