//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What the box proves of the work: a mended test is shown as such, and one that was made to pass in another way is flagged.
func TestProof(t *testing.T) {
	t.Parallel()
	const test = "import unittest, sum\nclass T(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(sum.add(12000, 345), 12345)\n    def test_more(self):\n        self.assertEqual(sum.add(-1, 1), 0)\n"
	files := map[string]string{"check.sh": "python3 -m unittest -v\n", "sum.py": "def add(a, b):\n    return a - b\n", "test_sum.py": test}
	for name, c := range map[string]struct {
		script     string
		transition workorder.Transition
		flag       string
	}{
		"mended":     {"printf 'def add(a, b):\\n    return a + b\\n' >sum.py", workorder.Fixed, ""},
		"deleted":    {"printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_true(self):\\n        self.assertTrue(True)\\n' >test_sum.py", workorder.Fixed, workorder.FlagTestDeleted},
		"skipped":    {"sed -i 's/^    def test/    @unittest.skip(\"later\")\\n    def test/' test_sum.py", workorder.Fixed, workorder.FlagTestSkipped},
		"weakened":   {"sed -i 's/assertEqual(\\(.*\\), [0-9]*)/assertIsNotNone(\\1)/' test_sum.py", workorder.Fixed, workorder.FlagTestWeakened},
		"edited":     {"echo true >check.sh", workorder.Fixed, workorder.FlagCheckEdited},
		"hard-coded": {"printf 'def add(a, b):\\n    if (a, b) == (12000, 345):\\n        return 12345\\n    return 0\\n' >sum.py", workorder.Fixed, workorder.FlagHardCoded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			c2 := u.run("", "create", "--task", "x", "--repo", u.repo(files), "-p", u.project(scripted("validate: {test: sh check.sh}\n", c.script)))
			r := u.plainResult(c2.task(t))
			if c2.code != 0 || r.Proof == nil || len(r.Proof.Checks) != 1 {
				t.Fatalf("exit code %d, %+v, %q", c2.code, r.Proof, r.Warnings)
			}
			check := r.Proof.Checks[0]
			if check.Transition != c.transition || check.Base == nil || check.Base.Passed || check.Head == nil || !check.Head.Passed {
				t.Errorf("%+v; %s", check, r.Proof.Reason)
			}
			if got := slices.ContainsFunc(r.Proof.Flags, func(f workorder.Flag) bool { return f.Kind == c.flag }); got != (c.flag != "") {
				t.Errorf("flags %+v", r.Proof.Flags)
			}
			b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, workorder.ReportMarkdown))
			if err != nil || strings.Contains(string(b), "Look closely") != (c.flag != "") {
				t.Errorf("%v: the report says\n%s", err, b)
			}
		})
	}
}

// A container that the agent leaves running does not stand beside the checks: what it would mend in the clean checkouts stays
// broken.
func TestProofAgainstContainers(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	// It leaves the work tree alone, whose changes would be committed: the check fails there, and has to fail in the clean checkout.
	script := `docker run -d --restart always -v /home/sandbox:/h --entrypoint sh ` + redisImage + ` -c 'while true; do for g in $(find /h -maxdepth 6 -name g 2>/dev/null); do echo right >$(dirname $g)/f; done; sleep 0.1; done' >/dev/null
mkdir -p ~/try && touch ~/try/g && until grep -q right ~/try/f; do sleep 0.1; done # it works
touch g && git add g && git commit -qm 'Look'`
	c := u.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"f": "wrong\n"}), "-p",
		u.project(scripted("services:\n  redis: {image: "+redisImage+"}\nvalidate: {test: 'for i in 1 2 3 4 5; do grep -q right f && exit 0; sleep 0.3; done; exit 1'}\n", script)))
	r := u.plainResult(c.task(t))
	if r.Proof == nil || len(r.Proof.Checks) != 1 {
		t.Fatalf("%s: %+v, %q", r.Status, r.Proof, r.Warnings)
	}
	if check := r.Proof.Checks[0]; check.Head == nil || check.Head.Passed {
		t.Errorf("the container passed the check: %+v; %s", check, r.Proof.Reason)
	}
	if step(t, r, "services").Status != workorder.StepDone || len(r.Services) != 1 || r.Services[0].State != "ready" {
		t.Errorf("the project's own service was removed: %+v", r.Services)
	}
}
