//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestTools asks for versions that there are nowhere: the run ends and names them.
func TestTools(t *testing.T) {
	t.Parallel()
	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		c := u.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"README": "x"}), "-p", u.project(`
name: tools
tools: {pnpm: "999", node: "1000"}
harness: {name: command, command: "true"}
`))
		r := u.result(c.task(t))
		if c.code != workorder.ExitTaskFailed || r.EndedBy != workorder.EndedBySetup || r.Reached(workorder.StepAgent) {
			t.Fatalf("exit code %d, ended by %s (%s)", c.code, r.EndedBy, r.Reasons)
		}
		s := r.Step(workorder.StepTools)
		for _, name := range []string{"pnpm 999", "node 1000"} {
			if s == nil || !strings.Contains(s.Error, name) {
				t.Errorf("%s is not named: %+v", name, s)
			}
		}
	})
}

// images are those that `image ls` lists.
func (u *user) images() (list []provision.BuiltImage) {
	u.t.Helper()
	c := u.run("", "image", "ls", "--json")
	if err := json.Unmarshal([]byte(c.stdout), &list); c.code != 0 || err != nil {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return list
}
