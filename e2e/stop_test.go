//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The worst stop that is promised to land: ten seconds, an agent and three
// services that do not hear SIGTERM, and 200 MB that nobody has pushed yet.
func TestStopInTenSeconds(t *testing.T) {
	for name, add := range map[string]string{
		"committed":                "git add -A",
		"half of it not committed": "git add big1 big2 big3 big4",
	} {
		t.Run(name, func(t *testing.T) {
			const files, size = 8, 25 << 20
			deafService := "{image: " + redisImage + ", command: [sh, -c, \"trap '' TERM; while :; do sleep 1; done\"], healthcheck: {test: [\"true\"]}}\n"
			u := newCarefulUser(t)
			w := u.workOn(scripted("services:\n  one: "+deafService+"  two: "+deafService+"  three: "+deafService,
				fmt.Sprintf("for i in $(seq %d); do head -c %d /dev/urandom >big$i; done\n", files, size)+add+
					" && git commit -qm big\n"+busy+deaf))
			grace := int(workorder.StopGrace.Seconds())
			if err := eng.ContainerStop(t.Context(), w.box(), container.StopOptions{Timeout: &grace}); err != nil {
				t.Fatal(err)
			}
			r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.BySignal)
			landed(t, w.repo, r)
			if names := gittest.Git(t, w.repo, "ls-tree", "--name-only", r.Branch); strings.Count(names, "big") != files {
				t.Errorf("on the branch: %s", names)
			}
			gittest.Git(t, w.repo, "fsck", "--strict", "--no-dangling")
			if r.NextCommand != "sandbox-agent continue "+w.id {
				t.Errorf("next command %q", r.NextCommand)
			}
		})
	}
}
