//go:build e2e

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// base is an image that has nothing of ours: the demo's and every test's image is built on it.
const base = "sandbox-agent/base:debian-trixie"

func manager(t *testing.T) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.Open(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func create(t *testing.T, m *sandbox.Manager, s sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	if s.Image == "" {
		s.Image = base
	}
	sb, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := sb.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func TestContainer(t *testing.T) {
	t.Parallel()
	m := manager(t)
	sb := create(t, m, sandbox.Spec{Lifetime: sandbox.Session, Network: sandbox.NetworkNone, User: "1000:1000"})
	start := time.Now()
	r, err := sb.Run(t.Context(), sandbox.Command{
		Argv: []string{"sh", "-c", "cat; pwd; echo $A; id -u; echo e >&2; exit 7"}, Dir: "/tmp", Env: []string{"A=b"}, Stdin: strings.NewReader("hi\n"), Timeout: 5 * time.Second,
	})
	if err != nil || string(r.Stdout) != "hi\n/tmp\nb\n1000\n" || string(r.Stderr) != "e\n" || r.ExitCode != 7 {
		t.Errorf("%q %q %+v %v", r.Stdout, r.Stderr, r, err)
	}
	t.Log(time.Since(start), os.Getpid())
	if _, err := m.Get(t.Context(), "nobody"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}
