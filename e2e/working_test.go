//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// working is a run whose agent has done its work and waits.
type working struct {
	*started
	u    *user
	repo string
	id   string
}

// work starts a run on a local repository and waits until its agent is busy.
// The script goes on from there.
func work(t *testing.T, script string, args ...string) *working {
	t.Helper()
	u := newCarefulUser(t)
	return u.work(script, args...)
}

func (u *user) work(script string, args ...string) *working {
	u.t.Helper()
	return u.workOn(scripted("", busy+script), args...)
}

func (u *user) workOn(yaml string, args ...string) *working {
	u.t.Helper()
	w := &working{u: u, repo: u.repo(map[string]string{"README": "x"})}
	w.started = u.start("", append([]string{"create", "--task", "x", "--repo", w.repo, "-p", u.project(yaml)}, args...)...)
	w.waitFor("agent-is-busy")
	w.id = taskID.FindString(w.out.String() + w.errOut.String())
	return w
}

// end checks how the run ended and returns its result.
func (w *working) end(code int, status workorder.Status, by workorder.EndedBy) *workorder.Result {
	w.t.Helper()
	if c := w.wait(); c.code != code {
		w.t.Errorf("exit code %d, want %d", c.code, code)
	}
	r := w.u.result(w.id)
	if r.Status != status || r.EndedBy != by {
		w.t.Errorf("%s by %s (%s), want %s by %s", r.Status, r.EndedBy, r.Reasons, status, by)
	}
	return r
}

// box is the run's container.
func (w *working) box() string {
	w.t.Helper()
	cs := ours(w.t, w.id)
	if len(cs) != 1 {
		w.t.Fatalf("%d containers of %s", len(cs), w.id)
	}
	return cs[0].ID
}

// boot is the process id of boot on this machine.
func (w *working) boot() int {
	w.t.Helper()
	top, err := eng.ContainerTop(w.t.Context(), w.box(), []string{"-eo", "pid,args"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range top.Processes {
		if strings.HasSuffix(strings.Join(p[1:], " "), "entrypoint boot") {
			pid, err := strconv.Atoi(p[0])
			if err != nil {
				w.t.Fatal(err)
			}
			return pid
		}
	}
	w.t.Fatalf("no boot among %v", top.Processes)
	return 0
}

// tell lets an agent go on that waits for the word.
func tell(t *testing.T, box, word string) {
	t.Helper()
	var b bytes.Buffer
	writeTar(&b, word, 0o644, nil)
	if err := eng.CopyToContainer(t.Context(), box, "/tmp", &b, container.CopyToContainerOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await is the agent's part of tell.
func await(word string) string { return "until test -e /tmp/" + word + "; do sleep 0.1; done\n" }

// boxLimit bounds the wait for the end of a box that has no more to do: above what the slowest machine takes to land.
const boxLimit = 5 * time.Minute

// boxEnds waits until a box has ended by itself.
func boxEnds(t *testing.T, box string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), boxLimit)
	defer cancel()
	done, errs := eng.ContainerWait(ctx, box, container.WaitConditionNotRunning)
	select {
	case <-done:
	case err := <-errs:
		t.Fatalf("wait for the end of box %s: %v", box, err)
	}
}
