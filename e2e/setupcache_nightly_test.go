//go:build e2e && nightly

package e2e

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Where setup leaves a container that has the work tree, it is the agent's work tree, and no later task's.
func TestContainerOfSetupSeesTheWork(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	const head = "services:\n  redis: {image: " + redisImage + "}\nlifecycle:\n  setup:\n    - docker run -d --name watcher -v /workspace:/w " + redisImage + " sleep 600\n"
	repo := u.repo(map[string]string{"f": "0\n"})
	c := u.run("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted(head, "echo work >new; docker exec watcher cat /w/new >seen; docker exec watcher cp /w/new /w/copy")))
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s, %+v", c.code, r.Status, r.Reasons)
	}
	for _, name := range []string{"seen", "copy"} {
		if got := gittest.Git(t, repo, "show", r.Branch+":"+name); got != "work" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := u.cache("ls").Snapshots; len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
