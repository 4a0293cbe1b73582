package proof_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const goMod = "module example.org/calc\n\ngo 1.21\n"

const goCode = `package calc

func Add(a, b int) int { return a - b }

func Twice(a int) int { return a + a }
`

const goTests = `package calc

import "testing"

func TestAdd(t *testing.T) {
	if got := Add(20, 22); got != 42 {
		t.Fatalf("Add(20, 22) = %d, want 42", got)
	}
}

func TestTwice(t *testing.T) {
	if Twice(2) != 4 {
		t.Fatal("Twice")
	}
}
`

const pyCode = `def fib(n):
    return n


def total(items):
    return len(items)
`

const pyTests = `import unittest

import calc


class CalcTest(unittest.TestCase):
    def test_fib(self):
        self.assertEqual(calc.fib(30), 832040)

    def test_total(self):
        self.assertEqual(calc.total([20, 22]), 42)
`

// goCache shares the compiled standard library with the caller: both sides of a proof
// have a home of their own, and with it an empty cache.
func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return "GOCACHE=" + strings.TrimSpace(string(out))
}

func TestFixedAndNew(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"go.mod": goMod, "calc.go": goCode, "calc_test.go": goTests})
	b.Env = append(b.Env, goCache(t))
	b.validate("test", "go test ./...", "vet", "go vet ./...") // the proof asks for the report itself
	head := b.commit(map[string]string{
		"calc.go":      strings.Replace(goCode, "a - b", "a + b", 1),
		"more_test.go": "package calc\n\nimport \"testing\"\n\nfunc TestZero(t *testing.T) {\n\tif Add(0, 0) != 0 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	p := b.prove(t.Context(), head)
	if p.Base != b.base || p.Head != head || len(p.Reasons) != 0 || len(p.TestFindings) != 0 || len(p.Checks) != 2 {
		t.Fatalf("%+v", p)
	}
	c := p.Checks[0]
	if c.Transition != workorder.TransitionFixed || c.Report != "go test -json" || c.Base.Passed || c.Base.ExitCode != 1 || !c.Head.Passed {
		t.Errorf("%+v", c)
	}
	want := map[workorder.Transition]int{workorder.TransitionFixed: 1, workorder.TransitionStillPasses: 1, workorder.TransitionNewPasses: 1}
	if d := cmp.Diff(want, c.Counts); d != "" {
		t.Error(d)
	}
	tests := []workorder.TestChange{
		{Suite: "example.org/calc", Name: "TestAdd", Transition: workorder.TransitionFixed},
		{Suite: "example.org/calc", Name: "TestZero", Transition: workorder.TransitionNewPasses},
	}
	if d := cmp.Diff(tests, c.Tests); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&workorder.TestCounts{Passed: 1, Failed: 1}, c.Base.Tests); d != "" {
		t.Error(d)
	}
	// It was repeated on both sides, and go did not answer from memory.
	if c.Base.Log != "logs/proof-base-test-again.log" || strings.Contains(b.log("logs/proof-head-test-again.log"), "(cached)") {
		t.Errorf("log %s:\n%s", c.Base.Log, b.log("logs/proof-head-test-again.log"))
	}
	if log := b.log("logs/proof-base-test.log"); !strings.Contains(log, "--- FAIL: TestAdd") || strings.Contains(log, `{"`) {
		t.Errorf("the log for people is\n%s", log)
	}
	if v := p.Checks[1]; v.Transition != workorder.TransitionStillPasses || v.Head.Log != "logs/proof-head-vet.log" || v.Report != "" || v.Tests == nil {
		t.Errorf("%+v", v)
	}
	if w := b.warnings(); len(w) > 0 {
		t.Error(w)
	}
}

func TestCheats(t *testing.T) {
	t.Parallel()
	const script = "#!/bin/sh\nset -e\n/usr/bin/python3 -m unittest\n"
	base := map[string]string{"go.mod": goMod, "calc.go": goCode, "calc_test.go": goTests, "calc.py": pyCode, "test_calc.py": pyTests, "check.sh": script}
	tests := "package calc\n\nimport \"testing\"\n"
	_, twice, _ := strings.Cut(goTests, "\nfunc TestTwice")
	twice = "\nfunc TestTwice" + twice
	for name, c := range map[string]struct {
		golang bool
		head   map[string]string
		want   string
	}{
		"honest":               {golang: true, head: map[string]string{"calc.go": strings.Replace(goCode, "a - b", "a + b", 1)}},
		"honest python":        {head: map[string]string{"calc.py": "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n\ndef total(items):\n    return sum(items)\n"}},
		"deleted test":         {golang: true, head: map[string]string{"calc_test.go": tests + twice}, want: workorder.FindingTestDeleted},
		"skipped test":         {golang: true, head: map[string]string{"calc_test.go": strings.Replace(goTests, "TestAdd(t *testing.T) {\n", "TestAdd(t *testing.T) {\n\tt.Skip(\"later\")\n", 1)}, want: workorder.FindingTestSkipped},
		"weakened assertion":   {head: map[string]string{"test_calc.py": strings.ReplaceAll(strings.Replace(pyTests, "self.assertEqual(calc.fib(30), 832040)", "self.assertTrue(calc.fib(30))", 1), "assertEqual(calc.total([20, 22]), 42)", "assertIsNotNone(calc.total([20, 22]))")}, want: workorder.FindingBaseTests},
		"edited script":        {head: map[string]string{"check.sh": script[:len(script)-1] + " || true\n"}, want: workorder.FindingCheckEdited},
		"broken":               {golang: true, head: map[string]string{"calc.go": strings.Replace(goCode, "a + a", "a - a", 1)}, want: workorder.FindingBrokenOnHead},
		"nothing that is run":  {golang: true, head: map[string]string{"README": "done\n"}, want: workorder.FindingNothingProven},
		"deleted with its bug": {golang: true, head: map[string]string{"calc_test.go": ""}, want: workorder.FindingTestDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, base)
			b.Env = append(b.Env, goCache(t))
			b.validate("test", "./check.sh")
			if c.golang {
				b.validate("test", "go test -json ./...")
			}
			p := b.prove(t.Context(), b.commit(c.head))
			if len(p.Reasons) != 0 {
				t.Error(p.Reasons)
			}
			got := kinds(p)
			if c.want == "" {
				if len(got) > 0 || p.Checks[0].Transition != workorder.TransitionFixed {
					t.Errorf("flags %+v of %+v", p.TestFindings, p.Checks)
				}
				return
			}
			if !slices.Contains(got, c.want) {
				t.Errorf("flags %+v of %+v, want %s", p.TestFindings, p.Checks, c.want)
			}
		})
	}
}

// TestFlaky: base and head differ or head fails, so the checks are repeated, and the repeats differ.
func TestFlaky(t *testing.T) {
	t.Parallel()
	const coin = "n=$(cat $HOME/n 2>/dev/null || echo 0); echo $((n+1)) >$HOME/n\n"
	for name, c := range map[string]struct{ base, head string }{
		"on head":         {"true\n", coin + "test $n = 1"},
		"on head, passed": {"false\n", coin + "test $n = 0"},
		"on base":         {coin + "test $n = 1", "true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const shell = "#!/bin/sh\necho 1..2\necho ok 1 - steady\n"
			end := " && echo ok 2 - shaky || { echo not ok 2 - shaky; exit 1; }\n"
			file := func(s string) string { return shell + strings.TrimSuffix(s, "\n") + end }
			b := newBox(t, map[string]string{"check.sh": file(c.base)})
			b.validate("test", "./check.sh")
			p := b.prove(t.Context(), b.commit(map[string]string{"check.sh": file(c.head)}))
			got := p.Checks[0]
			if got.Transition != workorder.TransitionFlaky || got.Report != "tap" || len(got.Tests) != 1 || got.Tests[0].Name != "shaky" || got.Tests[0].Transition != workorder.TransitionFlaky {
				t.Errorf("%+v", got)
			}
			if !slices.Contains(kinds(p), workorder.FindingNothingProven) {
				t.Errorf("a flaky test proves nothing: %+v", p.TestFindings)
			}
		})
	}
}

// TestSides: what keeps a side from being run is said, and is no error.
func TestSides(t *testing.T) {
	t.Parallel()
	t.Run("setup fails on base", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"a": "1\n"})
		b.Order.Setup = []string{"test -e ready"}
		b.validate("test", "true")
		p := b.prove(t.Context(), b.commit(map[string]string{"ready": "1\n"}))
		c := p.Checks[0]
		if c.Base != nil || c.Head == nil || !c.Head.Passed || c.Transition != workorder.TransitionNotCompared || p.Reasons.Code() != workorder.ReasonSetup || !strings.Contains(p.Reasons.String(), "logs/proof-base-setup-1.log") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("setup fails on head", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"ready": "1\n"})
		b.Order.Setup = []string{"test -e ready"}
		b.Order.SecretNames, b.Order.SecretUses = []string{"NPM_TOKEN"}, map[string]workorder.SecretUse{"NPM_TOKEN": workorder.SecretForSetup}
		b.validate("test", "true")
		p := b.prove(t.Context(), b.commit(map[string]string{"ready": ""}))
		if p.Checks[0].Head != nil || p.Checks[0].Base == nil || !slices.Contains(kinds(p), workorder.FindingBrokenOnHead) || p.Reasons.Code() != workorder.ReasonSetup || !strings.Contains(p.Reasons.String(), "NPM_TOKEN") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("no base", func(t *testing.T) {
		t.Parallel()
		for _, base := range []string{"", strings.Repeat("1", 40)} {
			b := newBox(t, map[string]string{"a": "1\n"})
			b.validate("test", "true")
			head := b.commit(map[string]string{"b": "2\n"})
			b.base = base
			p := b.prove(t.Context(), head)
			if p.Checks[0].Base != nil || !p.Checks[0].Head.Passed || p.Reasons.Code() != workorder.ReasonNoBase {
				t.Errorf("%+v", p)
			}
		}
	})
	t.Run("base that the remote lost", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"a": "1\n"})
		b.validate("test", "test -e b && git rev-parse -q --verify origin/main >/dev/null && git log --oneline | wc -l")
		b.base = b.commit(map[string]string{"b": "2\n"})
		p := b.prove(t.Context(), b.commit(map[string]string{"c": "2\n"}))
		if p.Checks[0].Transition != workorder.TransitionStillPasses || len(p.Reasons) != 0 || b.log("logs/proof-head-test.log") != "3\n" {
			t.Errorf("%+v", p)
		}
	})
	t.Run("same commit", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"a": "1\n"})
		b.validate("test", "true")
		if p := b.prove(t.Context(), b.base); p.Checks[0].Head != nil || p.Reasons.Code() != workorder.ReasonSameCommit {
			t.Errorf("%+v", p)
		}
	})
	t.Run("no checks", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"a": "1\n"})
		if p := b.prove(t.Context(), b.commit(map[string]string{"b": "2\n"})); len(p.TestFindings) != 1 || p.TestFindings[0].Kind != workorder.FindingNothingProven {
			t.Errorf("%+v", p)
		}
	})
	t.Run("a command that goes to the work tree", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, map[string]string{"a": "1\n"})
		b.validate("test", "cd "+b.Workspace+" && true", "other", "true")
		p := b.prove(t.Context(), b.commit(map[string]string{"b": "2\n"}))
		if p.Checks[0].Head != nil || p.Checks[1].Head == nil || p.Reasons.Code() != workorder.ReasonWorkspace {
			t.Errorf("%+v", p)
		}
	})
}

// TestSurroundings: what commands find around them.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.put(b.Home+"/.local/bin/printf", "#!/bin/sh\necho faked\n")
	b.put(b.Home+"/.gitconfig", "[alias]\nstatus = !echo faked\n")
	b.Env = append(b.Env, "PYTHONPATH="+b.Workspace+"/src:/opt", "TOKEN="+secret, "CACHE="+b.Home+"/.cache", "URL=http://"+b.Workspace)
	b.Prepare = func(_ context.Context, dir string, _ *proc.Credential) error {
		return os.WriteFile(dir+"/.env", []byte("A=1\n"), 0o644)
	}
	b.Order.Setup = []string{`test -s .env && rm -f .env; echo "$HOME" >"$HOME/from-setup"; chmod 500 "$HOME"; mkdir ro; touch ro/x; chmod 500 ro`}
	b.validate("test", `set -e; test "$(cat "$HOME/from-setup")" = "$HOME"; test "$PWD" = "$SANDBOX_AGENT_WORKSPACE"; test "$(pwd -P)" = "$PWD"
test "$PYTHONPATH" = "$PWD/src:/opt"; test "$CACHE" = "$HOME/.cache"; test "$(/usr/bin/env printf hi)" = hi; test "$(ls -A "$HOME")" = from-setup
test "$(git status --porcelain | tr -d '\n')" = "?? ro/"; git rev-parse --verify -q origin/main; git config remote.origin.url; test "$(basename "$PWD")" = workspace
echo "the token is $TOKEN"; id -u; echo "ok 1 - `+secret+`"; echo 1..1; test ! -e b`, secret, "true")
	head := b.commit(map[string]string{"b": "1\n"})
	b.asOther()
	p := b.prove(t.Context(), head)
	c := p.Checks[0]
	if c.Base == nil || !c.Base.Passed || c.Head == nil || c.Head.Passed || c.Transition != workorder.TransitionBroken {
		t.Fatalf("%+v\n%s", p, b.log("logs/proof-base-test.log"))
	}
	text := b.log("logs/proof-base-test.log")
	if !strings.Contains(text, "https://example.org/r.git\nthe token is ***") && !strings.Contains(text, "https://example.org/r.git\nthe token is [") {
		t.Error(text)
	}
	for _, e := range b.events {
		if strings.Contains(e.Text+e.Name, secret) {
			t.Errorf("%+v", e)
		}
	}
	for _, c := range p.Checks {
		if strings.Contains(c.Name+c.Command, secret) {
			t.Errorf("%+v", c)
		}
		for _, x := range c.Tests {
			if strings.Contains(x.Name, secret) {
				t.Errorf("%+v", x)
			}
		}
	}
	names := b.names(b.OutDir + "/logs")
	if !slices.Contains(names, "proof-base-setup-1.log") || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, secret) }) {
		t.Error(names)
	}
	if _, err := os.Stat(b.Workspace + "/ro"); err == nil {
		t.Error("the work tree was touched")
	}
}

// A check that passes while its own report says that tests failed.
func TestPassesWithFailedTests(t *testing.T) {
	t.Parallel()
	const report = "echo 'TAP version 13'; echo 1..2; echo 'ok 1 - a'; echo 'not ok 2 - b'; test -e lenient"
	for name, base := range map[string]map[string]string{"newly": {"a": "1"}, "as ever": {"a": "1", "lenient": "yes\n"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, base)
			b.validate("test", report)
			p := b.prove(t.Context(), b.commit(map[string]string{"lenient": "yes\n", "a": "2"}))
			flagged := slices.ContainsFunc(p.TestFindings, func(f workorder.TestFinding) bool {
				return f.Kind == workorder.FindingCheckEdited && strings.Contains(f.Text, `"test"`) && strings.Contains(f.Text, " 1 ")
			})
			if c := p.Checks[0]; !c.Head.Passed || c.Head.Tests == nil || c.Head.Tests.Failed != 1 || flagged != (name == "newly") {
				t.Errorf("head %+v, flags %+v", c.Head, p.TestFindings)
			}
		})
	}
}
