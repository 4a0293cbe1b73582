//go:build e2e && nightly

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestToolsOfTheDistribution asks for tools in versions that the image's distribution has.
func TestToolsOfTheDistribution(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	c := u.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"README": "x"}), "-p", u.project(`
name: tools
tools: {java: "21", maven: "3", ruby: ">=3.1", php: "8", rust: ">=1.70", python: ">=3.9", poetry: "*"}
lifecycle:
  setup:
    - java -version 2>&1 | grep -q '"21' && test -x "$JAVA_HOME/bin/javac" && mvn --version | grep -q "Java version. 21"
    - ruby -e 'exit RUBY_VERSION.to_i == 3' && gem --version && bundle --version
    - php --version | grep -q "^PHP 8"
    - cd "$(mktemp -d)" && cargo init --quiet --name x && cargo run --quiet --offline
    - poetry --version && python3 --version
harness: {name: command, command: "true"}
`))
	r := u.result(c.task(t))
	if s := r.Step(workorder.StepSetup); s == nil || s.Status != workorder.StepDone {
		t.Fatalf("exit code %d, %s (%s), setup %+v", c.code, r.Status, r.Reasons, s)
	}
}

// The tools that a project names are fetched once: the next sandbox has them in its image.
func TestToolsThere(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	// Of the package manager that package.json names, too: what the project declares is what its files say.
	const is = `node --version | grep -q "^v20\." && test "$(pnpm --version)" = 9.1.0 && go version | grep -q "go1\.25\." && test ! -w "$(readlink -f "$(command -v node)")"`
	repo := u.repo(map[string]string{"package.json": `{"packageManager": "pnpm@9.1.0"}`, "go.mod": "module x\n\ngo 1.25\n"})
	file := u.project(`
name: tools
tools: {node: "20", pnpm: 9.1.0, go: "1.25"}
network: {mode: none} # what root fetches is not the agent's
lifecycle:
  setup:
    - ` + is + `
    - npm --version
    - cd "$(mktemp -d)" && go mod init x && echo package x >x.go && go build ./...
validate:
  there: ` + is + `
harness:
  name: command
  command: |
    ` + is + ` && for p in node pnpm go; do command -v $p; done >there && stat -c %Z "$(readlink -f "$(command -v node)")" >made && git add -A && git commit -q -m work
`)
	c := u.run("", "create", "--task", "x", "--repo", repo, "-p", file)
	r := u.result(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess || r.Proof == nil || len(r.Warnings) > 0 {
		t.Fatalf("exit code %d, %s (%s), proof %v, warnings %q", c.code, r.Status, r.Reasons, r.Proof, r.Warnings)
	}
	for _, p := range r.Proof.Checks {
		if !p.Head.Passed {
			t.Errorf("in the proof %s failed", p.Name)
		}
	}
	if s := r.Step(workorder.StepTools); s == nil || s.Status != workorder.StepDone {
		t.Errorf("the step is %+v", s)
	}
	if got, want := strings.Fields(gittest.Git(t, repo, "show", r.Branch+":there")), "/opt/tools/bin/"; len(got) != 3 || !strings.HasPrefix(got[0], want) || !strings.HasPrefix(got[2], want) {
		t.Errorf("the agent had %q", got)
	}
	// The next sandbox has them without fetching them again: they are in its image.
	if !slices.ContainsFunc(u.images(), func(i provision.BuiltImage) bool {
		return i.ID == r.Image.ID && strings.Contains(i.Prepared, "pnpm=9.1.0") && !i.Old
	}) {
		t.Errorf("%+v is not among the prepared images", r.Image)
	}
	c = u.run("", "create", "--task", "x", "--repo", repo, "-p", file)
	again := u.result(c.task(t))
	if c.code != 0 || again.Status != workorder.StatusSuccess || len(again.Warnings) > 0 || again.Image.ID != r.Image.ID {
		t.Fatalf("exit code %d, %s (%s), warnings %q, image %+v", c.code, again.Status, again.Reasons, again.Warnings, again.Image)
	}
	made := func(branch string) string { return gittest.Git(t, repo, "show", branch+":made") } // only the kernel sets this time
	if first, second := made(r.Branch), made(again.Branch); first != second {
		t.Errorf("node was fetched again: %s, then %s", first, second)
	}
}
