package testreport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// report reads "suite/name status" lines; a status of "whole" is a failed suite.
func report(tb testing.TB, lines ...string) *Report {
	tb.Helper()
	r := &Report{Format: TAP}
	for _, l := range lines {
		f := strings.Fields(l)
		t := Test{Suite: f[0], Name: f[1], Status: workorder.TestStatus(f[2])}
		switch f[2] {
		case "whole":
			t.Whole, t.Name, t.Status, t.Text = true, wholeSuite, workorder.TestFailed, "did not build"
		case "failed":
			t.Text = "said of " + t.Name
		}
		r.Tests = append(r.Tests, t)
	}
	return r
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		base, head [][]string
		want       string
	}{
		{"all transitions", [][]string{{"s pp passed", "s pf passed", "s ps passed", "s pn passed", "s fp failed", "s ff failed", "s fs failed", "s sp skipped", "s sf skipped", "s ss skipped"}}, [][]string{{"s pp passed", "s pf failed", "s ps skipped", "s fp passed", "s ff failed", "s fs skipped", "s sp passed", "s sf failed", "s ss skipped", "s np passed", "s nf failed", "s ns skipped"}}, `pass→fail s pf said of pf
new→fail s nf said of nf
new→fail s sf said of sf
deleted s pn 
skipped s fs 
skipped s ns 
skipped s ps 
fail→fail s ff said of ff
fail→pass s fp 
fail→pass s sp 
new s np 
`},
		{"flaky on either side", [][]string{{"s a passed", "s b passed", "s c passed"}, {"s a failed", "s b passed", "s c passed"}}, [][]string{{"s a passed", "s b passed", "s c passed"}, {"s a passed", "s b failed", "s c passed"}}, `flaky s a 
flaky s b said of b
`},
		{"missing in a repeat", [][]string{{"s a passed"}}, [][]string{{"s a passed", "s n passed"}, {"s a passed"}}, "flaky s n \n"},
		{"names with a number of their own in each run", [][]string{{"s a(0xc01) passed", "s a(0xc02) passed", "s at:12 failed"}, {"s a(0xc03) passed", "s a(0xc04) passed", "s at:13 failed"}}, [][]string{{"s a(0xc05) passed", "s a(0xc06) passed", "s at:14 failed"}, {"s a(0xc07) passed", "s a(0xc08) passed", "s at:15 failed"}}, "fail→fail s at:0 (1) said of at:15\n"},
		{"one of them is missing in a run", [][]string{{"s a1 passed"}, {"s a2 passed"}}, [][]string{{"s a3 passed"}, {"s b passed"}}, "flaky s a1 \nflaky s a2 \nflaky s a3 \nflaky s b \n"},
		{"numbers that only the task changes", [][]string{{"s a1 passed"}, {"s a1 passed"}}, [][]string{{"s a2 passed"}, {"s a2 passed"}}, "deleted s a1 \nnew s a2 \n"},
		{"base that ran once", [][]string{{"s a1 passed"}}, [][]string{{"s a2 passed"}}, "deleted s a1 \nnew s a2 \n"},
		{"file renamed", [][]string{{"a.test.js one passed", "a.test.js two passed", "o one passed"}}, [][]string{{"b.test.js one passed", "b.test.js two failed", "o one passed"}}, "pass→fail b.test.js two said of two\n"},
		{"namesakes go with their file", [][]string{{"a works passed", "a x passed", "b works failed", "b y passed"}}, [][]string{{"a2 works passed", "a2 x passed", "b2 works failed", "b2 y passed"}}, "fail→fail b2 works said of works\n"},
		{"suite does not build", [][]string{{"p a passed", "p b passed", "q c passed"}}, [][]string{{"p (suite) whole", "q c passed"}}, `pass→fail p (suite) did not build
pass→fail p a not run: did not build
pass→fail p b not run: did not build
`},
		{"suite builds again", [][]string{{"p (suite) whole"}}, [][]string{{"p a passed"}}, "fail→pass p (suite) \nfail→pass p a \n"},
		{"module of classes not loaded", [][]string{{"t.m.C a passed"}}, [][]string{{"t.m (suite) whole"}}, "pass→fail t.m.C a not run: did not build\nnew→fail t.m (suite) did not build\n"},
		{"parent fails first", [][]string{{"p T passed", "p T/x passed"}}, [][]string{{"p T failed"}}, "pass→fail p T said of T\npass→fail p T/x not run: said of T\n"},
		{"one side", nil, [][]string{{"s a failed"}}, " s a said of a\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changes, counts := Compare(reports(t, c.base), reports(t, c.head))
			var got strings.Builder
			n := counts[workorder.TransitionStillPasses]
			for _, ch := range changes {
				n++
				fmt.Fprintf(&got, "%s %s %s %s\n", ch.Transition, ch.Suite, ch.Name, ch.Text)
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Error(diff)
			}
			total := 0
			for _, k := range counts {
				total += k
			}
			if total != n {
				t.Errorf("%d counted, %d listed", total, n)
			}
		})
	}
}

func reports(tb testing.TB, sides [][]string) (rs []*Report) {
	tb.Helper()
	for _, lines := range sides {
		rs = append(rs, report(tb, lines...))
	}
	return rs
}

func TestCompareIsBounded(t *testing.T) {
	t.Parallel()
	var b, h []string
	for i := range 3 * workorder.MaxTestChanges {
		b = append(b, fmt.Sprintf("s t%d passed", i))
		h = append(h, fmt.Sprintf("s t%d failed", i))
	}
	h = append(h, "s new passed")
	changes, counts := Compare([]*Report{report(t, b...)}, []*Report{report(t, h...)})
	if len(changes) != workorder.MaxTestChanges || counts[workorder.TransitionBroken] != 3*workorder.MaxTestChanges || counts[workorder.TransitionNewPasses] != 1 {
		t.Errorf("%d changes, %v", len(changes), counts)
	}
}
