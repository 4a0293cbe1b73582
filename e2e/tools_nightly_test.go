//go:build e2e && nightly

package e2e

import (
	"testing"

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
