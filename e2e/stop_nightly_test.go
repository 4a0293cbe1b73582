//go:build e2e && nightly

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// GNU timeout passes a signal on to its child, and then to the group of both: the work is saved as after one.
func TestTimeoutCommand(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	u.by = []string{"timeout", "-k", "60", "600"}
	w := u.work(deaf)
	if err := syscall.Kill(w.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	landed(t, w.repo, w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal))
}

// The box is removed under the CLI.
func TestBoxRemoved(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := eng.ContainerRemove(t.Context(), w.box(), container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		t.Fatal(err)
	}
	w.end(workorder.ExitBox, workorder.StatusLost, workorder.EndedByHost)
}

// Somebody else stops the box, with the engine's own means.
func TestBoxStoppedFromOutside(t *testing.T) {
	t.Parallel()
	w := work(t, deaf)
	if err := eng.ContainerStop(t.Context(), w.box(), container.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	landed(t, w.repo, w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal))
}

// Who insists is obeyed at once; what was committed is not promised then.
func TestInterruptTwice(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	u.terminal = true
	w := u.work(deaf)
	w.insist()
	w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
}

// Boot dies in the middle of the agent's work: rescue saves it.
func TestBootKilled(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := syscall.Kill(w.boot(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusError, workorder.EndedByBox)
	landed(t, w.repo, r)
	if r.Reasons.Code() != workorder.ReasonBoot {
		t.Errorf("reason %q", r.Reasons)
	}
}

// The shortest stop and a commit that is too large for it, of an agent that hears nothing. It is not parallel: a machine that is
// busy has no time to say in ten seconds how the run ended.
func TestLargeLastCommit(t *testing.T) {
	w := newCarefulUser(t).workOn(scripted("", "head -c 300000000 /dev/urandom >big && git add big && git commit -qm big\n"+busy+deaf))
	grace := int(workorder.StopGrace.Seconds())
	if err := eng.ContainerStop(t.Context(), w.box(), container.StopOptions{Timeout: &grace}); err != nil {
		t.Fatal(err)
	}
	c := w.wait()
	r := w.u.result(w.id)
	if c.code != workorder.ExitInterrupted || r.Status != workorder.StatusInterrupted {
		t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	if got := gittest.Git(t, w.repo, "cat-file", "-s", r.Branch+":big"); got != "300000000" {
		t.Errorf("the last commit is not on %s: %s, %q", r.Branch, got, r.Warnings)
	}
	at := r.Branch
	if r.Uncommitted { // there was time for the small changes alone
		at = workorder.KeptRef(w.id, "first-1")
		if _, err := os.Stat(filepath.Join(w.u.state, w.id, workorder.ArchiveFile)); err != nil {
			t.Error(err)
		}
	}
	if got := gittest.Git(t, w.repo, "show", at+":uncommitted"); got != "uncommitted" {
		t.Errorf("the small file at %s: %q", at, got)
	}
}

// TestBootHangsAtStop: boot hangs, and PID 1 lands the work at a stop. It runs alone: rescue has two seconds
// (workorder.RescueGrace), which other boxes on the machine may use up.
func TestBootHangsAtStop(t *testing.T) {
	w := work(t, "sleep 600")
	if err := syscall.Kill(w.boot(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if c := w.u.run("", "stop", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	c := w.wait()
	r := w.u.result(w.id)
	if c.code != workorder.ExitCode(r.Status, r.EndedBy) || c.code == 0 {
		t.Errorf("exit code %d, %s by %s", c.code, r.Status, r.EndedBy)
	}
	landed(t, w.repo, r)
}
