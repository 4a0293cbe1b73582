package boot

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// checkState is the result of a check and its tests for the task's commits.
type checkState int

const (
	checkGreen checkState = iota
	checkRed              // on base and on head, and no test is newly red
	checkWorse            // newly red, or nothing shows that it was red before
)

// checkVerdict is one check on both sides.
type checkVerdict struct {
	state checkState
	text  string // about a check that is not green
	fixed bool   // the check, or a test of it, went from red to green
}

// judgeCheck compares a check on base and on head. p is nil if the proof lacks it; same: head is base. Head is red if
// the check fails in the work tree, or fails steadily in a clean checkout.
func judgeCheck(v *workorder.Validation, p *workorder.CheckProof, same bool) checkVerdict {
	p = cmp.Or(p, &workorder.CheckProof{})
	at := fmt.Sprintf("%s (exit %d)", v.Name, v.ExitCode)
	red := !v.Passed || p.Transition == workorder.TransitionBroken || p.Transition == workorder.TransitionStillFails
	if v.Passed && red {
		at = fmt.Sprintf("%s (exit %d in a clean checkout)", v.Name, p.Head.ExitCode)
	}
	fixed := v.Passed && p.Transition == workorder.TransitionFixed || fixedTests(p) > 0
	newly := p.Counts[workorder.TransitionBroken] + p.Counts[workorder.TransitionNewFails]
	switch {
	case newly > 0:
		return checkVerdict{checkWorse, fmt.Sprintf("%s: %s that did not fail before", at, failing(newly)), fixed}
	case !red:
		return checkVerdict{checkGreen, "", fixed}
	case same:
		return checkVerdict{checkRed, at + ": the task changed nothing", fixed}
	case p.Base == nil:
		return checkVerdict{checkWorse, at, fixed}
	case p.BaseVaries:
		return checkVerdict{checkRed, at + ": it passes at times and fails at others", fixed}
	case p.Base.Passed:
		return checkVerdict{checkWorse, at + ": it passed before the task", fixed}
	case p.Base.Tests != nil && p.Head != nil && p.Head.Tests == nil:
		return checkVerdict{checkWorse, at + ": it fails before its tests run, which they did before the task", fixed}
	case p.Base.Tests != nil && p.Head != nil && p.Head.Tests.Failed > p.Base.Tests.Failed:
		return checkVerdict{checkWorse, fmt.Sprintf("%s: %s, %d before the task", at, failing(p.Head.Tests.Failed), p.Base.Tests.Failed), fixed}
	}
	if n := p.Counts[workorder.TransitionStillFails]; n > 0 {
		return checkVerdict{checkRed, fmt.Sprintf("%s: %s as before", v.Name, failing(n)), fixed}
	}
	return checkVerdict{checkRed, at + ": as before the task", fixed}
}

// fixedTests is the least number of tests that went from red to green; skipped tests count only where necessary.
func fixedTests(p *workorder.CheckProof) int {
	if p.Base == nil || p.Base.Tests == nil || p.Head == nil || p.Head.Tests == nil {
		return 0
	}
	n := p.Base.Tests.Failed
	for _, t := range []workorder.Transition{
		workorder.TransitionStillFails, workorder.TransitionDeleted, workorder.TransitionSkipped,
		workorder.TransitionFlaky,
	} {
		n -= p.Counts[t]
	}
	return max(0, min(n, p.Counts[workorder.TransitionFixed]))
}

func failing(tests int) string {
	if tests == 1 {
		return "1 test fails"
	}
	return fmt.Sprintf("%d tests fail", tests)
}

// redChecks is the only rule for failing checks. green is the verdict of the run if none fails; moved reports
// a rebase that was allowed to move the branch, which no check prevents that fails on the old head, too.
// strict is the project's setting; nil if it has none. found reports that the checks were detected: then only one
// that passed on base can fail the task.
//
// Newly red is a failure. Red on both sides, with nothing newly red, proves nothing either way, unless the
// task made something green.
func redChecks(
	green workorder.Ending, strict *bool, checks []workorder.Validation, proof *workorder.Proof, same, moved, found bool,
) workorder.Ending {
	var worse, red []string
	fixed := false
	for i := range checks {
		p := checkOf(proof, checks[i].Name)
		j := judgeCheck(&checks[i], p, same)
		guess := found && (p == nil || p.Base == nil || !p.Base.Passed)
		if j.state == checkWorse && (moved || guess) {
			j.state = checkRed
		}
		switch fixed = fixed || j.fixed; {
		case j.state == checkWorse, j.state == checkRed && strict != nil && *strict:
			worse = append(worse, j.text)
		case j.state == checkRed:
			red = append(red, j.text)
		}
	}
	switch {
	case len(worse) > 0:
		return because(
			workorder.StatusFailed, workorder.EndedByValidation, workorder.ReasonValidation, "validation failed: %s",
			strings.Join(append(worse, red...), ", "),
		)
	case len(red) == 0:
		return green
	case green.Status == workorder.StatusFailed, fixed, strict != nil: // lax, since a strict project has no red check here
		green.Reasons = green.Reasons.And(workorder.ReasonAsBefore, "%s", strings.Join(red, ", "))
		return green
	}
	return because(workorder.StatusUnproven, workorder.EndedByValidation, workorder.ReasonAsBefore, "%s", strings.Join(red, ", "))
}
