//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

const containerPrefix = "sandbox-agent-sandbox-"

// poolSandboxes are those of the user's pool that are on the engine, by name.
func (u *user) poolSandboxes() (names []string) {
	u.t.Helper()
	all, err := eng.ContainerList(context.WithoutCancel(u.t.Context()), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandbox-agent.sandbox.owner"))})
	if err != nil {
		u.t.Fatal(err)
	}
	for _, c := range all {
		if strings.HasSuffix(c.Labels["sandbox-agent.sandbox.owner"], ":"+u.state) {
			names = append(names, c.Labels["sandbox-agent.sandbox"])
		}
	}
	slices.Sort(names)
	return names
}

func (u *user) poolVerb(code int, args ...string) {
	u.t.Helper()
	if c := u.run("", append([]string{"pool"}, args...)...); c.code != code {
		u.t.Errorf("pool %q: exit code %d: %s", args, c.code, c.stderr)
	}
}

// Ten who ask at once get three; idle ones of another trust make room; one that somebody has removed is not lent.
func TestPoolRoom(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	p := u.servePool("--max", "3")
	var wg sync.WaitGroup
	codes := make([]int, 10)
	for i := range codes {
		wg.Go(func() { codes[i] = u.run("", "pool", "acquire").code })
	}
	most := 0
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	for waiting := true; waiting; {
		select {
		case <-all:
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
		most = max(most, len(u.poolSandboxes()))
	}
	slices.Sort(codes)
	if fmt.Sprint(codes) != "[0 0 0 1 1 1 1 1 1 1]" || most != 3 {
		t.Errorf("exit codes %v, %d at a time", codes, most)
	}
	for _, l := range u.poolLeases() {
		u.poolVerb(0, "release", l.ID)
	}
	if s := u.poolStats(); s.Idle != 3 {
		t.Errorf("%+v", s)
	}
	trusted := u.acquire("--trust", "trusted")
	if s := u.poolStats(); s.Idle != 2 || s.Busy != 1 || s.Total != 3 {
		t.Errorf("%+v", s)
	}
	for _, name := range u.poolSandboxes() {
		if name == trusted.Sandbox {
			continue
		}
		if err := eng.ContainerRemove(t.Context(), containerPrefix+name, container.RemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	l := u.acquire()
	if c := u.run("", "pool", "exec", l.ID, "--", "echo", "well"); c.stdout != "well\n" {
		t.Errorf("exit code %d, %q", c.code, c.stdout)
	}
	u.poolVerb(0, "destroy", l.ID)
	u.poolVerb(0, "destroy", l.ID)
	u.poolVerb(0, "destroy-all")
	u.poolVerb(0, "destroy-all")
	p.stopped(0)
}

func (u *user) poolLeases() (all []poolLease) {
	u.t.Helper()
	c := u.run("", "pool", "list", "--json")
	if err := json.Unmarshal([]byte(c.stdout), &all); err != nil || c.code != 0 {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return all
}

// A pool that is stopped removes all of its sandboxes, also one that somebody has paused. One that is killed leaves them to the next one.
func TestPoolEnds(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	three := func() (busy poolLease) {
		t.Helper()
		busy = u.acquire()
		u.acquire()
		u.poolVerb(0, "release", u.acquire().ID)
		if s := u.poolStats(); s.Idle != 1 || s.Busy != 2 {
			t.Errorf("%+v", s)
		}
		pause(t, containerPrefix+busy.Sandbox)
		return busy
	}
	p := u.servePool()
	three()
	p.stopped(0)
	if left := u.poolSandboxes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	p = u.servePool()
	three()
	p.Signal(syscall.SIGKILL)
	p.wait()
	if left := u.poolSandboxes(); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
	p = u.servePool()
	for deadline := time.Now().Add(20 * time.Second); len(u.poolSandboxes()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", u.poolSandboxes())
		}
	}
	u.acquire()
	p.stopped(0)
}

// One that the engine cannot remove is told of, and keeps no other.
func TestPoolStuck(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	p := u.servePool()
	stuck := u.acquire()
	u.acquire()
	u.poolVerb(0, "release", u.acquire().ID)
	in, err := eng.ContainerInspect(t.Context(), containerPrefix+stuck.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(in.GraphDriver.Data["UpperDir"], "stuck")
	change := func(how string) error {
		_, err := proc.Output(context.WithoutCancel(t.Context()), proc.Spec{Argv: []string{"chattr", how, file}})
		return err
	}
	if err := errors.Join(os.WriteFile(file, nil, 0o600), change("+i")); err != nil {
		p.stopped(0)
		t.Skipf("no file of a container can be made immutable here: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(change("-i"), eng.ContainerRemove(context.WithoutCancel(t.Context()), containerPrefix+stuck.Sandbox, container.RemoveOptions{Force: true})); err != nil {
			t.Error(err)
		}
	})
	p.stopped(1)
	if left := u.poolSandboxes(); len(left) != 1 || left[0] != stuck.Sandbox || !strings.Contains(p.errOut.String(), stuck.Sandbox) {
		t.Errorf("left: %v", left)
	}
}

// An image is what its name means when a lease is asked for.
func TestPoolImage(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	p := u.servePool()
	name := "sandbox-agent-e2e-pool:" + strings.ToLower(filepath.Base(filepath.Dir(u.dir)))
	u.poolVerb(2, "acquire", "--image", name)
	tag := func(to string) {
		t.Helper()
		if err := eng.ImageTag(t.Context(), to, name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := eng.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	tag(plainImage)
	first := u.acquire("--image", name)
	u.poolVerb(0, "release", first.ID)
	tag(redisImage)
	second := u.acquire("--image", name)
	if c := u.run("", "pool", "exec", second.ID, "--", "redis-server", "--version"); second.Sandbox == first.Sandbox || c.code != 0 {
		t.Errorf("%s after %s: exit code %d", second.Sandbox, first.Sandbox, c.code)
	}
	p.stopped(0)
}

// Where a container can make no leases it is lent once, which is told.
func TestPoolNoLeases(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := "sandbox-agent-e2e-pool-unfit:" + fmt.Sprint(time.Now().UnixNano())
	if err := buildImage(t.Context(), name, "FROM "+plainImage+"\nRUN mkdir -p /.sandbox-agent && touch /.sandbox-agent/lease\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := eng.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	p := u.servePool("--image", name)
	var last poolLease
	for range 2 {
		l := u.acquire()
		if l.Sandbox == last.Sandbox {
			t.Error("it was lent again")
		}
		last = l
		if c := u.run("", "pool", "exec", l.ID, "--", "sh", "-c", "id -u; pwd; ls -A; echo >left; echo $HOME"); c.stdout != "1000\n/workspace\n/workspace\n" {
			t.Errorf("exit code %d, %q", c.code, c.stdout)
		}
		u.poolVerb(0, "release", l.ID)
	}
	if s := u.poolStats(); s.Reuse != pool.ReuseNever || s.Reason == "" || s.Total != 0 {
		t.Errorf("%+v", s)
	}
	if n := bytes.Count([]byte(p.errOut.String()), []byte("level=WARN")); n != 1 {
		t.Errorf("%d warnings", n)
	}
	p.stopped(0)
}
