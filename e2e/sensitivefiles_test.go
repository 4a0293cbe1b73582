//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The result and the summary name the sensitive files that a branch changes, from commits that the agent made and from
// files that it left uncommitted.
func TestSensitiveFiles(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x", "Makefile": "test:\n\ttrue\n"})
	c := u.run("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", `
set -e
mkdir -p .github/workflows
printf 'on: pull_request_target\njobs:\n  a: {}\n' >.github/workflows/ci.yml
git add . && git commit -qm 'ci'
echo export A=1 >.envrc
`)))
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	for _, path := range []string{".github/workflows/ci.yml", ".envrc"} {
		if !slices.ContainsFunc(r.Surface, func(f workorder.SurfaceFinding) bool { return f.Path == path && f.Severe }) {
			t.Errorf("nothing grave about %s: %+v", path, r.Surface)
		}
		if !strings.Contains(c.stdout, path) {
			t.Errorf("the summary does not name %s", path)
		}
	}
}
