package proof_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestBaseTests(t *testing.T) {
	t.Parallel()
	const suite = "example.org/calc"
	base := map[string]string{"go.mod": goMod, "calc.go": goCode, "calc_test.go": goTests}
	mended := strings.Replace(goCode, "a - b", "a + b", 1)
	add, twice, _ := strings.Cut(goTests, "\nfunc TestTwice")
	twice = "package calc\n\nimport \"testing\"\n\nfunc TestTwice" + twice
	for name, c := range map[string]struct {
		head   map[string]string
		flags  []string
		failed []workorder.TestChange
		absent bool // no run
	}{
		"code mended, tests added in a new file": {
			head:   map[string]string{"calc.go": mended, "more_test.go": strings.ReplaceAll(twice, "TestTwice", "TestMore")},
			absent: true,
		},
		"code mended, tests added in the same file": {
			head:  map[string]string{"calc.go": mended, "calc_test.go": goTests + "\nfunc TestMore(*testing.T) {}\n"},
			flags: []string{workorder.FindingTestEdited},
		},
		"a test moved to a new file": {
			head:  map[string]string{"calc.go": mended, "calc_test.go": add, "twice_test.go": twice},
			flags: []string{workorder.FindingTestEdited},
		},
		"a test adapted to the bug": {
			head:   map[string]string{"calc_test.go": strings.Replace(goTests, "got != 42", "got != -2", 1)},
			flags:  []string{workorder.FindingTestEdited, workorder.FindingBaseTests},
			failed: []workorder.TestChange{{Suite: suite, Name: "TestAdd", Transition: workorder.TransitionStillFails}},
		},
		"a changed behavior, with its test": {
			head: map[string]string{
				"calc.go":      strings.Replace(mended, "a + a", "3 * a", 1),
				"calc_test.go": strings.Replace(goTests, "!= 4 ", "!= 6 ", 1),
			},
			flags:  []string{workorder.FindingTestEdited, workorder.FindingBaseTests},
			failed: []workorder.TestChange{{Suite: suite, Name: "TestTwice", Transition: workorder.TransitionBroken}},
		},
		"head fails": {
			head: map[string]string{
				"calc.go":      strings.Replace(mended, "a + a", "a - a", 1),
				"calc_test.go": goTests + "\nfunc TestMore(*testing.T) {}\n",
			},
			flags:  []string{workorder.FindingTestEdited, workorder.FindingBrokenOnHead},
			absent: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, base)
			b.Env = append(b.Env, goCache(t))
			if c.failed != nil {
				b.Rooms = &places{home: b.Home}
			}
			b.validate("test", "go test ./...", "vet", "go vet .")
			p := b.prove(t.Context(), b.commit(c.head))
			got := p.Checks[0]
			for i := range got.BaseTestsFailed {
				got.BaseTestsFailed[i].Text = ""
			}
			if diff := cmp.Diff(c.flags, kinds(p)); diff != "" || len(p.Reasons) > 0 {
				t.Errorf("%s: %+v", diff, p)
			}
			if diff := cmp.Diff(c.failed, got.BaseTestsFailed); diff != "" {
				t.Error(diff)
			}
			if (got.BaseTests == nil) != c.absent || got.BaseTests != nil && got.BaseTests.Passed != (c.failed == nil) {
				t.Errorf("%+v", got.BaseTests)
			}
			if p.Checks[1].BaseTests != nil {
				t.Error("a check that runs no tests was run with base's tests")
			}
			if got.BaseTests != nil && b.log(got.BaseTests.Log) == "" {
				t.Error("there is no log")
			}
		})
	}
}

// Without reports the exit code tells.
func TestBaseTestsWithoutReport(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"calc.py": pyCode, "test_calc.py": pyTests, "check.sh": "/usr/bin/python3 -m unittest\n"})
	b.validate("test", "sh check.sh")
	head := b.commit(map[string]string{"test_calc.py": strings.NewReplacer("832040", "30", ", 42", ", 2").Replace(pyTests)})
	p := b.prove(t.Context(), head)
	if c := p.Checks[0]; c.BaseTests == nil || c.BaseTests.Passed || !c.Head.Passed || !slices.Contains(kinds(p), workorder.FindingBaseTests) {
		t.Errorf("%+v, %+v", c, p.TestFindings)
	}
	if f := p.TestFindings[0]; f.Kind != workorder.FindingTestEdited || f.Path != "test_calc.py" || f.Added != 2 || f.Deleted != 2 {
		t.Errorf("%+v", p.TestFindings)
	}
}

// A check that passes and has lost its report.
func TestReportMissing(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"check": "echo 'TAP version 13'; echo 1..1; echo 'ok 1 - a'\n"})
	b.validate("test", ". ./check")
	p := b.prove(t.Context(), b.commit(map[string]string{"check": "true\n"}))
	if !slices.Contains(kinds(p), workorder.FindingReportMissing) {
		t.Errorf("%+v of %+v", p.TestFindings, p.Checks)
	}
}
