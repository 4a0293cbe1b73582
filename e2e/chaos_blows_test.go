//go:build e2e

package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// client is the engine that the user's boxes run on.
func (u *chaosUser) client() *client.Client {
	if u.engine != nil {
		return u.engine.Client
	}
	return eng
}

// box is the task's running container, "" when there is none.
func (u *chaosUser) box(ctx context.Context) string {
	cs, err := u.client().ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", workorder.LabelTask+"="+u.id))})
	if err != nil || len(cs) == 0 {
		return ""
	}
	return cs[0].ID
}

func killBox(t *testing.T, u *chaosUser, _ *started, _ *rand.Rand) bool {
	t.Helper()
	id := u.box(t.Context())
	return id != "" && u.client().ContainerKill(t.Context(), id, "KILL") == nil
}

func stopBox(t *testing.T, u *chaosUser, _ *started, _ *rand.Rand) bool {
	t.Helper()
	id := u.box(t.Context())
	grace := int(workorder.StopGrace.Seconds())
	return id != "" && u.client().ContainerStop(t.Context(), id, container.StopOptions{Timeout: &grace}) == nil
}

// killInBox kills the processes of the box whose command line has the text.
func killInBox(text string) func(*testing.T, *chaosUser, *started, *rand.Rand) bool {
	return func(t *testing.T, u *chaosUser, _ *started, _ *rand.Rand) bool {
		t.Helper()
		id := u.box(t.Context())
		if id == "" {
			return false
		}
		c, err := u.client().ContainerInspect(t.Context(), id)
		if err != nil || c.State == nil || c.State.Pid == 0 {
			return false
		}
		space, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(c.State.Pid), "ns/pid"))
		if err != nil {
			return false
		}
		list, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		struck := false
		for _, p := range list {
			cmdline, err := os.ReadFile(filepath.Join(p, "cmdline"))
			if err != nil || !strings.Contains(string(cmdline), text) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(p))
			if ns, nserr := os.Readlink(filepath.Join(p, "ns/pid")); err == nil && nserr == nil && ns == space {
				struck = syscall.Kill(pid, syscall.SIGKILL) == nil || struck
			}
		}
		return struck
	}
}

// cutRemote takes the remote away for a few seconds, while the run goes on, or for
// as long as it lasts.
func cutRemote(_ *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
	u.remote.Down.Store(true)
	defer u.remote.Down.Store(false)
	away := some(rng)
	if rng.IntN(2) == 0 {
		away = cliLimit
	}
	wait(s, away)
	return true
}

// some is a time in which the agent does a part of its work.
func some(rng *rand.Rand) time.Duration {
	return time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
}

// refuse makes the remote refuse every push for a few seconds, as a hook may that
// cannot reach something else.
func refuse(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
	t.Helper()
	hook := filepath.Join(u.bare, "hooks/pre-receive")
	if err := errors.Join(os.MkdirAll(filepath.Dir(hook), 0o755), os.WriteFile(hook, []byte("#!/bin/sh\necho not now; exit 1\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	wait(s, some(rng))
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	return true
}

// hold makes the remote accept connections and say nothing, for a few seconds.
func hold(_ *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
	u.remote.Hold.Store(true)
	defer u.remote.Hold.Store(false)
	wait(s, some(rng))
	return true
}

func wait(s *started, d time.Duration) {
	select {
	case <-s.Done():
	case <-time.After(d):
	}
}

// fillDisk leaves no room on the disk of the box and of its engine.
func fillDisk(t *testing.T, u *chaosUser, s *started, _ *rand.Rand) bool {
	t.Helper()
	fill := filepath.Join(u.engine.dir, "data", "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(fill)
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	f.Close()
	if !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
	// Until the run has ended, or for long enough to be noticed by it.
	wait(s, 4*time.Second)
	return true
}
