//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standbys are the user's boxes that were started before their tasks.
func (u *user) standbys() (all []container.Summary) {
	u.t.Helper()
	list, err := eng.ContainerList(context.WithoutCancel(u.t.Context()), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", workorder.LabelStandby)),
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(c container.Summary) bool {
		return !strings.HasSuffix(c.Labels[workorder.LabelOwner], ":"+u.state)
	})
}

// standby keeps one box for a project, and returns when it waits.
func (u *user) standby(args ...string) *started {
	u.t.Helper()
	s := u.start("", append([]string{"standby"}, args...)...)
	s.waitFor("ready")
	return s
}

// holds reports where a box has a text: in memory or variables of its processes.
func holds(t *testing.T, id, text string) (where []string) {
	t.Helper()
	top, err := eng.ContainerTop(t.Context(), id, []string{"-eo", "pid,comm"})
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Processes) < 2 {
		t.Fatalf("processes %v", top.Processes)
	}
	for _, p := range top.Processes {
		environ, err := os.ReadFile("/proc/" + p[0] + "/environ")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended, which a paused one cannot
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(environ, []byte(text)) {
			where = append(where, "variables of "+p[1])
		}
		if inMemory(t, p[0], text) {
			where = append(where, "memory of "+p[1])
		}
	}
	return where
}

// filesHold is holds for the files of all layers, and of the volume with those of the inner engine.
func filesHold(t *testing.T, id, text string) (where []string) {
	t.Helper()
	in := redact.Named(map[string]string{"x": text})
	files, err := eng.ContainerExport(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	volume, _, err := eng.CopyFromContainer(t.Context(), id, workorder.DataRoot)
	if err != nil {
		t.Fatal(err)
	}
	defer volume.Close()
	for name, r := range map[string]io.Reader{"files": files, "volume": volume} {
		if found, err := in.In(r); err != nil {
			t.Fatal(err)
		} else if found {
			where = append(where, name)
		}
	}
	return where
}

// inMemory reports whether a text is in a process's readable memory.
func inMemory(t *testing.T, pid, text string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	mem, merr := os.Open("/proc/" + pid + "/mem")
	if err = errors.Join(err, merr); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	const chunk = 1 << 20
	buf := make([]byte, chunk+len(text)) // a text may lie over the end of a piece
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || rights[0] != 'r' {
			continue
		}
		for at := from; at < to; at += chunk {
			n, err := mem.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
			if bytes.Contains(buf[:n], []byte(text)) {
				return true
			}
			if err != nil {
				break // memory of a device
			}
		}
	}
	return false
}

// A task takes a box whose services are healthy. The box has the task's secret when the task has it, and not before.
func TestStandby(t *testing.T) {
	t.Parallel()
	const secret = "standby-canary-5b1f0c"
	u := newCarefulUser(t, "E2E_KEY="+secret)
	repo := u.repo(map[string]string{"README": "x"})
	project := u.project(scripted(
		"repo: "+repo+"\nservices:\n  redis: {image: "+redisImage+"}\nsecrets: {KEY: env://E2E_KEY}\nlimits: {cpus: 1.5}\n",
		`test "$KEY" = "$(printf 'standby-%s' canary-5b1f0c)"
printf 'PING\r\n' | timeout 5 nc -q 1 redis 6379 | grep PONG
echo committed >committed; git add committed; git commit -qm work; echo uncommitted >uncommitted
for n in $(seq 300); do test -e /tmp/go-on && exit; echo agent-is-busy; sleep 0.2; done
`))
	s := u.standby("-p", project)
	box := u.standbys()[0]
	if box.State != container.StatePaused {
		t.Errorf("it is %s", box.State)
	}
	if where := append(holds(t, box.ID, secret), filesHold(t, box.ID, secret)...); len(where) > 0 {
		t.Errorf("the secret is in %q before a task has the box", where)
	}
	run := u.start("", "create", "-p", project, "-t", "x")
	run.waitFor("agent-is-busy")
	in, err := eng.ContainerInspect(t.Context(), box.ID)
	if err != nil || in.HostConfig.NanoCPUs != 15e8 || !strings.HasPrefix(in.Name, "/sandbox-agent-T-") {
		t.Errorf("%s, %d, %v", in.Name, in.HostConfig.NanoCPUs, err)
	}
	if where := holds(t, box.ID, secret); len(where) == 0 {
		t.Error("the search does not find a secret that is there")
	}
	id := taskID.FindString(in.Name)
	if c := u.run("", "exec", id, "--", "touch", "/tmp/go-on"); c.code != 0 {
		t.Fatal("the agent cannot end")
	}
	if c := run.wait(); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	r := u.result(id)
	if !r.Standby || step(t, r, workorder.StepServices).Status != workorder.StepSkipped {
		t.Errorf("%v, %+v", r.Standby, r.Steps)
	}
	landed(t, repo, r)
	if slices.ContainsFunc(u.standbys(), func(c container.Summary) bool { return c.ID == box.ID }) {
		t.Error("the box is still there")
	}
	if err := syscall.Kill(s.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if c := s.wait(); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
}

// Killed at any moment, the process that keeps a box, the box, and the command that takes it leave nothing and lose nothing.
func TestStandbyChaos(t *testing.T) {
	t.Parallel()
	rounds := 1
	if nightly {
		rounds = 12
	}
	for n := range rounds {
		random := rand.New(rand.NewPCG(20261127, uint64(n)))
		moment := func(most time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(most)))) }
		t.Run(fmt.Sprintf("owner %d", n), func(t *testing.T) {
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			s := u.start("", "standby", "--repo", repo, "-p", u.project(scripted("", "true")), "-n", "2")
			moment(4 * time.Second)
			s.Signal(syscall.SIGKILL)
			s.wait()
			u.noStandby(120)
		})
		t.Run(fmt.Sprintf("box %d", n), func(t *testing.T) {
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			project := u.project(scripted("repo: "+repo+"\n", busy))
			s := u.standby("-p", project)
			box := u.standbys()[0]
			go func() {
				moment(500 * time.Millisecond)
				_ = eng.ContainerKill(context.WithoutCancel(t.Context()), box.ID, "KILL")
			}()
			moment(500 * time.Millisecond)
			c := u.run("", "create", "-p", project, "-t", "x")
			if r := u.result(c.task(t)); r.Status == workorder.StatusSuccess {
				landed(t, repo, r)
			} else if r.Status != workorder.StatusLost && c.code != workorder.ExitBox {
				t.Errorf("%s: %s", r.Status, r.Reasons)
			}
			s.Signal(syscall.SIGTERM)
			s.wait()
		})
		t.Run(fmt.Sprintf("task %d", n), func(t *testing.T) {
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			project := u.project(scripted("repo: "+repo+"\n", busy))
			s := u.standby("-p", project)
			p := u.start("", "create", "-p", project, "-t", "x")
			moment(700 * time.Millisecond)
			p.Signal(syscall.SIGKILL)
			out := p.wait()
			if id := taskID.FindString(out.stdout); id != "" {
				u.run("", "logs", "-f", id)
				if r := u.result(id); r.Status == workorder.StatusSuccess {
					landed(t, repo, r)
				} else if r.Status != workorder.StatusLost && r.Status != workorder.StatusError {
					t.Errorf("%s: %s", r.Status, r.Reasons)
				}
			}
			s.Signal(syscall.SIGTERM)
			s.wait()
			u.run("", "gc")
			u.noStandby(600)
		})
	}
}

// noStandby waits until no box waits any more.
func (u *user) noStandby(tenths int) {
	u.t.Helper()
	for range tenths {
		if len(u.standbys()) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, c := range u.standbys() {
		u.t.Errorf("%s is left: %s", c.Names, c.Status)
	}
}
