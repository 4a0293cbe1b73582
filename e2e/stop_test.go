//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pushable is how many files of a size this machine can bring into a repository in half the time that a landing has
// to push, at most eight: what is tested is that the time is used, not how quick the machine is at this hour.
func pushable(t *testing.T, size int) int {
	t.Helper()
	const most = 8
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "--template=")
	gittest.Git(t, dir, "init", "-q", "--bare", "--template=", "there.git")
	gittest.Git(t, dir, "config", "core.bigFileThreshold", "1m")
	content := make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "add", "big")
	gittest.Git(t, dir, "commit", "-qm", "big")
	begin := time.Now()
	gittest.Git(t, dir, "push", "-q", "there.git", "HEAD:refs/heads/x")
	took := time.Since(begin)
	n := max(1, min(most, int(workorder.LandGrace/2/took)))
	t.Logf("one file took %s: %d of %d files", took.Round(time.Millisecond), n, most)
	return n
}

// The worst stop that is promised to land: ten seconds, an agent and three
// services that do not hear SIGTERM, and 200 MB that nobody has pushed yet (less where the machine is slow).
func TestStopInTenSeconds(t *testing.T) {
	adds := map[string]string{"half of it not committed": "git add big1 $(ls big[2-4] 2>/dev/null)"}
	if nightly {
		adds["committed"] = "git add -A"
	}
	for name, add := range adds {
		t.Run(name, func(t *testing.T) {
			const size = 25 << 20
			files := pushable(t, size)
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
