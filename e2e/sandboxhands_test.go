//go:build e2e

package e2e

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Who makes a sandbox can be killed before it was started: the next command finishes it, with the limits that it was to have.
func TestSandboxHalfMade(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("half", "--network", "none")
	container := "sandbox-agent-sandbox-" + name
	made, err := eng.ContainerInspect(t.Context(), container)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"exec", name, "--", "true"}, {"resume", name}, {"cp", "/etc/hostname", name + ":/tmp/"}, {"reset", name}, {"down", name}} {
		u.removeNow(name)
		// As the engine has one whose maker was killed between its two requests.
		if _, err := eng.ContainerCreate(t.Context(), made.Config, made.HostConfig, nil, nil, container); err != nil {
			t.Fatal(err)
		}
		if c := u.run("", verb...); c.code != 0 {
			t.Errorf("%s: exit code %d", verb[0], c.code)
		}
		now, err := eng.ContainerInspect(t.Context(), container)
		switch {
		case verb[0] == "down":
			if err == nil {
				t.Error("down: it is there still")
			}
		case err != nil:
			t.Fatal(err)
		case !now.State.Running || now.HostConfig.Memory != made.HostConfig.Memory || !now.HostConfig.NetworkMode.IsNone():
			t.Errorf("%s: %s, %d bytes, network %s", verb[0], now.State.Status, now.HostConfig.Memory, now.HostConfig.NetworkMode)
		}
	}
}

// Several terminals do the same to one sandbox: each reset makes it anew, and of forks to one name one succeeds, with the files of its own origin.
func TestSandboxManyHands(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	origins := []string{u.sandbox("hands", "--network", "none"), u.sandbox("otherhands", "--network", "none")}
	fork := u.claim(origins[0] + "-fork")
	at := func(n int, line func(i int) []string) (codes []int) {
		calls := make([]*started, n)
		for i := range calls {
			calls[i] = u.start("", line(i)...)
		}
		for _, c := range calls {
			codes = append(codes, c.wait().code)
		}
		return codes
	}
	if codes := at(6, func(int) []string { return []string{"reset", origins[0]} }); slices.ContainsFunc(codes, func(c int) bool { return c != 0 }) {
		t.Errorf("resets: exit codes %v", codes)
	}
	for _, o := range origins {
		if c := u.run("", "exec", o, "--", "touch", "/of-"+o); c.code != 0 {
			t.Fatalf("exit code %d", c.code)
		}
	}
	codes := at(6, func(i int) []string { return []string{"fork", origins[i%2], fork} })
	won := slices.Index(codes, 0)
	for i, c := range codes {
		if want := map[bool]int{true: 0, false: workorder.ExitUsage}[i == won]; c != want {
			t.Errorf("forks: exit codes %v", codes)
		}
	}
	if c := u.run("", "exec", fork, "--", "test", "-e", "/of-"+origins[max(0, won)%2]); c.code != 0 {
		t.Errorf("a fork has not the files of its origin: exit code %d", c.code)
	}
	if c := u.run("", append([]string{"down", fork}, origins...)...); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
}
