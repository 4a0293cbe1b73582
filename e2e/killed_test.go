//go:build e2e

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The CLI is killed at several moments; another process finishes the run, and
// nothing is lost of it.
func TestCLIKilled(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		moment string
		// begun: the box has its order, so the run goes on by itself.
		begun   bool
		nightly bool
	}{
		{moment: "preflight: started", nightly: true},
		{moment: "image: started", nightly: true},
		{moment: "start: started", nightly: true},
		{moment: "sandbox ready", begun: true, nightly: true},
		{moment: "clone: started", begun: true, nightly: true},
		{moment: "agent: started", begun: true},
		{moment: "stdout: agent-is-busy", begun: true, nightly: true},
		{moment: "push: started", begun: true},
		{moment: "push: done", begun: true, nightly: true},
	} {
		if k.nightly && !nightly {
			continue
		}
		t.Run(k.moment, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			s := u.start("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy+"sleep 2")))
			s.waitFor(k.moment)
			s.Signal(syscall.SIGKILL)
			id := s.wait().task(t)
			if c := u.run("", "ps"); c.code != 0 || !strings.Contains(c.stdout, id) {
				t.Errorf("ps: exit code %d", c.code)
			}
			followed := u.run("", "logs", "-f", id)
			c := u.run("", "result", id, "--json")
			if c.code != 0 {
				t.Fatalf("result: exit code %d", c.code)
			}
			r := u.result(id)
			if want := workorder.ExitCode(r.Status, r.EndedBy); followed.code != want {
				t.Errorf("logs -f: exit code %d, want %d", followed.code, want)
			}
			switch {
			case r.Status == workorder.StatusSuccess:
				landed(t, repo, r)
			case k.begun:
				t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
			case r.Status != workorder.StatusLost && r.Status != workorder.StatusError:
				t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
			}
			if c := u.run("", "gc"); c.code != 0 {
				t.Errorf("gc: exit code %d", c.code)
			}
		})
	}
}

// The CLI is killed where it prints nothing, by what a start leaves behind one after the other: what is left is always found
// and cleared away.
func TestCLIKilledAnyWhen(t *testing.T) {
	t.Parallel()
	written := func(u *user, name string) func() bool {
		return func() bool {
			found, err := filepath.Glob(filepath.Join(u.state, name))
			return err == nil && len(found) > 0
		}
	}
	inState := func(states ...container.ContainerState) func(u *user) func() bool {
		return func(u *user) func() bool {
			return func() bool {
				cs, err := eng.ContainerList(u.t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", workorder.LabelOwner))})
				return err == nil && slices.ContainsFunc(cs, func(c container.Summary) bool {
					return strings.HasSuffix(c.Labels[workorder.LabelOwner], ":"+u.state) && slices.Contains(states, c.State)
				})
			}
		}
	}
	moments := map[string]func(u *user) func() bool{
		"a task":             func(u *user) func() bool { return written(u, "T-*/*") },
		"a box":              inState(container.StateCreated, container.StateRunning),
		"a record of events": func(u *user) func() bool { return written(u, "T-*/"+workorder.EventsFile) },
	}
	if nightly {
		moments["a process"] = func(*user) func() bool { return func() bool { return true } }
		moments["a state folder"] = func(u *user) func() bool { return written(u, "owner.json") }
		moments["a box that runs"] = inState(container.StateRunning)
	}
	for name, moment := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killed(t, moment)
		})
	}
}

// killed starts a run, kills its command as soon as is says so, and checks what is found afterwards.
func killed(t *testing.T, is func(u *user) func() bool) {
	t.Helper()
	u := newCarefulUser(t)
	repo, there := u.repo(map[string]string{"README": "x"}), is(u)
	s := u.start("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy)))
	over := false
	for !over && !there() {
		select {
		case <-s.Done():
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	if over {
		t.Error("the run ended before there was such a moment")
	}
	s.Signal(syscall.SIGKILL)
	s.wait()
	for _, row := range u.ps() {
		followed, r := u.run("", "logs", "-f", row.TaskID), u.result(row.TaskID)
		if want := workorder.ExitCode(r.Status, r.EndedBy); followed.code != want {
			t.Errorf("logs -f: exit code %d, want %d", followed.code, want)
		}
		if r.Status != workorder.StatusSuccess && r.Status != workorder.StatusLost && r.Status != workorder.StatusError {
			t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
		} else if r.Status == workorder.StatusSuccess {
			landed(t, repo, r)
		}
	}
	if c := u.run("", "gc"); c.code != 0 {
		t.Errorf("gc: exit code %d", c.code)
	}
}

// The repository cannot be reached any more when the run lands: the work is in
// the box's bundle, and whoever asks for the result brings it home.
func TestCLIAndCompanionKilled(t *testing.T) {
	t.Parallel()
	w := work(t, await("go-on"))
	w.Signal(syscall.SIGKILL)
	w.wait()
	box := w.box()
	eventually(t, "the companion is killed", func() bool {
		left := w.u.processes()
		for pid := range left {
			_ = proc.Run(t.Context(), proc.Spec{Argv: []string{"kill", "-9", pid}}) // it may have just ended
		}
		return len(left) == 0
	})
	tell(t, box, "go-on")
	boxEnds(t, box)
	if c := w.u.run("", "result", w.id); c.code != 0 {
		t.Errorf("result: exit code %d", c.code)
	}
	r := w.u.result(w.id)
	landed(t, w.repo, r)
	if r.Status != workorder.StatusSuccess {
		t.Errorf("the work came home, the run is told as %s: %s", r.Status, r.Reasons)
	}
}
