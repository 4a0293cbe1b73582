//go:build e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
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
			r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
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

func TestStop(t *testing.T) {
	t.Parallel()
	agents := map[string]string{"deaf": deaf}
	if nightly {
		agents["obedient"] = "exec sleep 600"
	}
	for name, script := range agents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := work(t, script)
			if c := w.u.run("", "stop", w.id); c.code != 0 {
				t.Errorf("stop: exit code %d, %s", c.code, c.stdout)
			}
			landed(t, w.repo, w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal))
		})
	}
}

func TestInterruptOnce(t *testing.T) {
	t.Parallel()
	w := work(t, deaf)
	w.Signal(syscall.SIGINT)
	r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
	landed(t, w.repo, r)
	if r.Reasons.Code() != workorder.ReasonByUser || len(r.Reasons) != 1 {
		t.Errorf("reason %q", r.Reasons)
	}
}

// An interruption before there is a box leaves none.
func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	moments := []string{"start: started"}
	if nightly {
		moments = append(moments, "preflight: started", "sandbox ready")
	}
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			s := u.start("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", "sleep 600")))
			s.waitFor(moment)
			s.Signal(syscall.SIGINT)
			c := s.wait()
			if r := u.result(c.task(t)); c.code != workorder.ExitInterrupted || r.Status != workorder.StatusInterrupted {
				t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
			}
		})
	}
}

// The box is killed: all that was in it is gone, the run is not.
func TestBoxKilled(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := eng.ContainerKill(t.Context(), w.box(), "KILL"); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusLost, workorder.EndedByHost)
	if !r.Resumable || r.Reasons.Code() != workorder.ReasonVanished || step(t, r, "agent").Status != workorder.StepRunning {
		t.Errorf("the result does not say where it was: %+v", r)
	}
}

// pause freezes a container. On a busy machine the kernel may not freeze it at the first try, and the runtime gives up.
func pause(t *testing.T, id string) {
	t.Helper()
	tries := 0
	for err := eng.ContainerPause(t.Context(), id); err != nil; err = eng.ContainerPause(t.Context(), id) {
		if tries++; tries == 10 {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

// A box that was frozen can be stopped all the same.
func TestStopOfAFrozenBox(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	pause(t, w.box())
	if c := w.u.run("", "stop", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	c := w.wait()
	if r := w.u.result(w.id); c.code == 0 || c.code != workorder.ExitCode(r.Status, r.EndedBy) {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
}

func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	w := work(t, deaf)
	if c := w.u.run("", "stop", "--timeout", "0", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
	if r.Reasons.Code() != workorder.ReasonKilled {
		t.Errorf("reason %q", r.Reasons)
	}
}

// Boot dies in the middle of the agent's work, which leaves no room for rescue: rescue saves it.
func TestBootKilledUnderAForkBomb(t *testing.T) {
	t.Parallel()
	w := newCarefulUser(t).workOn(scripted("limits:\n  pids: 200\n", busy+await("bomb")+bomb))
	boot := w.boot()
	tell(t, w.box(), "bomb")
	for range 100 {
		if top, err := eng.ContainerTop(t.Context(), w.box(), nil); err == nil && len(top.Processes) > 150 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := syscall.Kill(boot, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusError, workorder.EndedByBox)
	landed(t, w.repo, r)
	if r.Reasons.Code() != workorder.ReasonBoot {
		t.Errorf("reason %q", r.Reasons)
	}
}
