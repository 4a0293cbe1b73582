package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// A sandbox that is created, and one that is started again, needs a slot; a running one has its own.
func TestUpAtTheLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sandbox-agent", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("limits: {sandboxes: 1}\nsecurity: {require_sandbox: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{
		"XDG_CONFIG_HOME": dir, "HOME": dir, "SANDBOX_AGENT_STATE_DIR": t.TempDir(), "DOCKER_HOST": "unix://" + filepath.Join(dir, "none.sock"),
	}
	e := &Env{
		OpenEngine: func() (*Backend, error) { return nil, sandbox.ErrUnavailable },
		Getenv:     func(name string) string { return vars[name] }, OpenSandboxes: sandbox.NewManager,
	}
	m, err := e.Manager(false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	up := func(name string) error {
		sb, err := m.Create(t.Context(), sandbox.Spec{Name: name, Runtime: sandbox.RuntimeHost})
		if err == nil {
			t.Cleanup(func() {
				if err := sb.Remove(context.WithoutCancel(t.Context()), sandbox.RemoveOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		return err
	}
	start := func(name string) error {
		sb, err := m.Get(t.Context(), name)
		if err == nil {
			_, err = sb.Run(t.Context(), sandbox.Command{Argv: []string{"true"}})
		}
		return err
	}
	if err := errors.Join(up("a"), start("a")); err != nil {
		t.Fatal(err)
	}
	if err := up("b"); !errors.Is(err, pool.ErrPoolFull) {
		t.Errorf("a second one: %v", err)
	}
	sb, err := m.Get(t.Context(), "a")
	if err == nil {
		err = sb.Stop(t.Context())
	}
	if err = errors.Join(err, up("b")); err != nil {
		t.Fatal(err)
	}
	if err := start("a"); !errors.Is(err, pool.ErrPoolFull) {
		t.Errorf("started again: %v", err)
	}
}
