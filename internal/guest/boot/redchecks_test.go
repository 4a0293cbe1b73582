package boot

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// provesAs is a prover whose proof has these checks.
type provesAs struct {
	fakeProver
	checks []workorder.CheckProof
}

func (p *provesAs) Prove(_ context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	return &workorder.Proof{Base: base, Head: head, Checks: p.checks}, nil, nil
}

// TestRedChecks has each combination of the two sides of a check, without a report of tests and with one.
func TestRedChecks(t *testing.T) {
	t.Parallel()
	type counts map[workorder.Transition]int
	run := func(passed bool, failed int) *workorder.CheckRun {
		r := &workorder.CheckRun{Passed: passed}
		if !passed {
			r.ExitCode = 1
		}
		if failed >= 0 {
			r.Tests = &workorder.TestCounts{Passed: 3, Failed: failed}
		}
		return r
	}
	const none = -1 // no report
	green, red := run(true, none), run(false, none)
	timedOut := &workorder.CheckRun{ExitCode: 124}
	check := func(base, head *workorder.CheckRun, is workorder.Transition, c counts) []workorder.CheckProof {
		return []workorder.CheckProof{{Name: "test", Base: base, Head: head, Transition: is, Counts: c}}
	}
	still, broken, fixed, flaky := workorder.TransitionStillFails, workorder.TransitionBroken, workorder.TransitionFixed, workorder.TransitionFlaky
	success, failed, unproven, nothing := workorder.StatusSuccess, workorder.StatusFailed, workorder.StatusUnproven, workorder.StatusNoChanges
	for name, c := range map[string]struct {
		passes bool // in the work tree
		proof  []workorder.CheckProof
		// The statuses without a word of the project's, with strict: true, and with strict: false.
		want, strict, lax workorder.Status
	}{
		"green on both":            {true, check(green, green, workorder.TransitionStillPasses, nil), success, success, success},
		"green, no proof":          {true, nil, success, success, success},
		"green, base is not known": {true, check(nil, green, workorder.TransitionNotCompared, nil), success, success, success},
		"red to green":             {true, check(red, green, fixed, nil), success, success, success},
		"green to red":             {false, check(green, red, broken, nil), failed, failed, failed},
		"green to a timeout":       {false, check(green, timedOut, broken, nil), failed, failed, failed},
		"red, no proof":            {false, nil, failed, failed, failed},
		"red, of another check": {
			false,
			[]workorder.CheckProof{{Name: "lint", Base: red, Head: red, Transition: still}},
			failed, failed,
			failed,
		},
		"red, base is not known":    {false, check(nil, red, workorder.TransitionNotCompared, nil), failed, failed, failed},
		"red on both":               {false, check(red, red, still, nil), unproven, failed, success},
		"a timeout on both":         {false, check(timedOut, timedOut, still, nil), unproven, failed, success},
		"red, head is not known":    {false, check(red, nil, workorder.TransitionNotCompared, nil), unproven, failed, success},
		"flaky on base, and red":    {false, varying(check(red, red, flaky, nil)), unproven, failed, success},
		"flaky on base, last green": {false, varying(check(green, red, flaky, nil)), unproven, failed, success},
		"flaky by the task":         {false, check(green, green, flaky, nil), failed, failed, failed},
		"red, flaky by the task":    {false, check(red, green, flaky, nil), unproven, failed, success},
		"flaky, and green":          {true, check(red, green, flaky, nil), success, success, success},
		// What the agent did not commit does not count.
		"red on both in clean checkouts":     {true, check(red, red, still, nil), unproven, failed, success},
		"green to red in clean checkouts":    {true, check(green, red, broken, nil), failed, failed, failed},
		"red in the work tree alone":         {false, check(green, green, workorder.TransitionStillPasses, nil), failed, failed, failed},
		"red in the work tree, red to green": {false, check(red, green, fixed, nil), unproven, failed, success},

		"tests: as before": {false, check(run(false, 2), run(false, 2), still, counts{still: 2}), unproven, failed, success},
		"tests: one is fixed": {
			false, check(run(false, 3), run(false, 2), still, counts{still: 2, fixed: 1}), success, failed,
			success,
		},
		"tests: one is fixed, one is gone": {false, check(run(false, 4), run(false, 2), still, counts{
			still: 2, fixed: 1,
			workorder.TransitionDeleted: 1,
		}), success, failed, success},
		"tests: one runs that was skipped": {
			false, check(run(false, 2), run(false, 2), still, counts{still: 2, fixed: 1}), unproven, failed,
			success,
		},
		"tests: one is fixed, one breaks": {
			false, check(run(false, 3), run(false, 3), still, counts{still: 2, fixed: 1, broken: 1}),
			failed, failed, failed,
		},
		"tests: a new one fails": {
			false, check(run(false, 2), run(false, 3), still, counts{still: 2, workorder.TransitionNewFails: 1}),
			failed, failed, failed,
		},
		"tests: more fail": {false, check(run(false, 2), run(false, 3), still, counts{still: 2}), failed, failed, failed},
		"tests: one is gone": {
			false, check(run(false, 3), run(false, 2), still, counts{still: 2, workorder.TransitionDeleted: 1}),
			unproven, failed, success,
		},
		"tests: one is skipped": {
			false, check(run(false, 3), run(false, 2), still, counts{still: 2, workorder.TransitionSkipped: 1}),
			unproven, failed, success,
		},
		"tests: one is flaky": {
			false, check(run(false, 3), run(false, 3), still, counts{still: 2, flaky: 1}), unproven, failed,
			success,
		},
		"tests: none runs any more": {
			false, check(run(false, 2), red, still, counts{workorder.TransitionNotCompared: 5}), failed, failed,
			failed,
		},
		"tests: they run for the first time": {
			false, check(red, run(false, 2), still, counts{workorder.TransitionNotCompared: 5}), unproven, failed,
			success,
		},
		"tests: one breaks in a green check": {
			true, check(run(true, 0), run(true, 1), workorder.TransitionStillPasses, counts{broken: 1}), failed,
			failed, failed,
		},
		"tests: fixed, the check turns green": {true, check(run(false, 1), run(true, 0), fixed, counts{fixed: 1}), success, success, success},
	} {
		for word, want := range map[string]workorder.Status{"": c.want, "strict": c.strict, "lax": c.lax} {
			t.Run(name+" "+word, func(t *testing.T) {
				t.Parallel()
				o := order()
				o.Validate = []workorder.Check{{Name: "test", Run: "false"}}
				if word != "" {
					o.Strict = new(word == "strict")
				}
				v := workorder.Validation{Name: "test", Passed: c.passes}
				if !c.passes {
					v.ExitCode = 1
				}
				f := &fake{validate: func() []workorder.Validation { return []workorder.Validation{v} }}
				r := playBox(t, f, o, func(b *Runner) {
					if b.Prover = nil; c.proof != nil {
						b.Prover = &provesAs{checks: c.proof}
					}
				})
				if r.result.Status != want || r.code != workorder.ExitCode(want, workorder.EndedByValidation) {
					t.Errorf("exit code %d, %s, want %s: %+v", r.code, r.result.Status, want, r.result.Reasons)
				}
				if want == unproven && r.result.Reasons.Code() != workorder.ReasonAsBefore {
					t.Errorf("%+v", r.result.Reasons)
				}
			})
		}
	}
	// What one check shows counts for the task, and nothing is red because of a task that changed nothing.
	two := []workorder.Validation{{Name: "test", ExitCode: 1}, {Name: "lint", Passed: true}}
	mended := &workorder.Proof{
		Checks: append(check(red, red, still, nil), workorder.CheckProof{Name: "lint", Base: red, Head: green, Transition: fixed}),
	}
	as := func(s workorder.Status) workorder.Ending {
		return workorder.Ending{Status: s, EndedBy: workorder.EndedByAgent}
	}
	for name, c := range map[string]struct {
		got  workorder.Ending
		want workorder.Status
	}{
		"another check is mended": {redChecks(as(success), nil, two, mended, false, false, false), success},
		"nothing changed":         {redChecks(as(nothing), nil, two, nil, true, false, false), unproven},
		"nothing changed, lax":    {redChecks(as(nothing), new(false), two, nil, true, false, false), nothing},
		"nothing changed, strict": {redChecks(as(nothing), new(true), two, nil, true, false, false), failed},
		"no checks":               {redChecks(as(success), nil, nil, nil, false, false, false), success},
		"a rebase, as the old head": {redChecks(as(success), nil, two, &workorder.Proof{Checks: check(nil, red, workorder.TransitionNotCompared, nil)},
			false, true, false), unproven},
		// A detected check fails a task only if it passed on base.
		"found, base is unknown": {redChecks(as(success), nil, two, nil, false, false, true), unproven},
		"found, more fail": {redChecks(as(success), nil, two, &workorder.Proof{Checks: check(run(false, 2), run(false, 3), still, counts{broken: 1})},
			false, false, true), unproven},
		"found, green on base": {redChecks(as(success), nil, two, &workorder.Proof{Checks: check(green, red, broken, nil)}, false, false, true), failed},
		"a rebase, strict":     {redChecks(as(success), new(true), two, &workorder.Proof{Checks: check(red, red, still, nil)}, false, true, false), failed},
	} {
		if c.got.Status != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, c.got.Status, c.want, c.got.Reasons)
		}
	}
}

// varying is a proof whose runs of base ended differently.
func varying(checks []workorder.CheckProof) []workorder.CheckProof {
	checks[0].BaseVaries = true
	return checks
}
