package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/testreport"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// withBaseTests ends the name of the log of a run with base's test files.
const withBaseTests = "-base-tests"

// findEdited finds the files of tests and checks that differ, where both commits are there.
func (r *run) findEdited(ctx context.Context) {
	if r.base.commit == "" || r.base.missing || r.base.commit == r.head.commit {
		return
	}
	commands := testreport.Commands{Checks: map[string]string{}, Setup: map[string]string{}}
	for _, c := range r.checks {
		commands.Checks[c.Name] = c.Run
	}
	for i, s := range r.Order.Setup { // they decide what the checks run with
		commands.Setup[setupName(i)] = s
	}
	edited, err := testreport.FindEdited(ctx, r.head.store, r.base.commit, r.head.commit, commands)
	if err != nil {
		r.because(workorder.ReasonNotRead, "the list of edited tests and checks is incomplete: %v", err)
	}
	r.edited = *edited
}

// judgedByTests returns the checks that pass on head and run tests by their reports; all that pass if no check has a report.
func (r *run) judgedByTests() (list []*check) {
	if len(r.edited.BaseTests) == 0 {
		return nil
	}
	reports := func(c *workorder.CheckRun) bool { return c != nil && c.Tests != nil }
	unknown := !slices.ContainsFunc(r.checks, func(c *check) bool { return reports(c.base.last()) || reports(c.head.last()) })
	for _, c := range r.checks {
		if h := c.head.last(); h != nil && h.Passed && (unknown || reports(h) || reports(c.base.last())) {
			list = append(list, c)
		}
	}
	return list
}

// runBaseTests runs checks on head's code with base's version of all test files, once, and last: it changes the side.
func (r *run) runBaseTests(ctx context.Context, s *side, list []*check) {
	if len(list) == 0 {
		return
	}
	if err := r.putBaseTests(ctx, s); err != nil {
		r.because(workorder.ReasonCheckout, "base's tests were not run on head's code: %v", err)
		return
	}
	s.baseTests = true
	for i, c := range list {
		took := time.Duration(c.head.last().DurationMS) * time.Millisecond
		if left := remaining(ctx); left < took {
			r.because(workorder.ReasonNoTime, "%s was not run with base's tests on head's code: it takes %s, and %s are left",
				c.Name, round(took), round(max(0, left)))
			continue
		}
		r.check(ctx, s, c, len(list)-1-i, withBaseTests)
	}
}

// putBaseTests replaces the test files of a checkout of head by those of base.
func (r *run) putBaseTests(ctx context.Context, s *side) error {
	t := r.checkoutOf(s)
	t.Env = append(t.Env, "GIT_LITERAL_PATHSPECS=1")
	for _, step := range []struct {
		paths []string
		args  []string
	}{
		{r.edited.HeadTests, []string{"rm", "--quiet", "--force", "--ignore-unmatch"}},
		{r.edited.BaseTests, []string{"checkout", "--quiet", "--force", r.base.commit}},
	} {
		if len(step.paths) == 0 {
			continue
		}
		t.Stdin = strings.Join(step.paths, "\x00")
		if err := t.Run(ctx, append(step.args, "--pathspec-from-file=-", "--pathspec-file-nul")...); err != nil {
			return fmt.Errorf("put base's test files into the checkout: %w", err)
		}
	}
	return nil
}

func (r *run) judgeBaseTests(c *check, p *workorder.CheckProof) {
	p.BaseTests = c.baseTests.last()
	if p.BaseTests == nil {
		return
	}
	var failed []workorder.TestChange
	if rep := c.baseTests.reports[0]; rep != nil {
		failed = testreport.FailedIn(rep, c.base.reports, c.head.reports)
	}
	switch {
	case len(failed) > 0:
		r.clean(failed)
		p.BaseTestsFailed = failed
		r.flag(workorder.FindingBaseTests, fmt.Sprintf("check %q: base's tests on head's code: %s", p.Name, testreport.FailedNames(failed)))
	case !p.BaseTests.Passed && p.Head.Passed:
		r.flag(workorder.FindingBaseTests, fmt.Sprintf("check %q: base's tests on head's code: exit %d", p.Name, p.BaseTests.ExitCode))
	}
}
