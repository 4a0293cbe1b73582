package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Uncommitted files of a repository are named, also below a directory of it, and a directory without one is refused.
func TestUncommitted(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	below := filepath.Join(repo, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	named := func(path string) string {
		t.Helper()
		warning, err := uncommitted(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return warning()
	}
	if got := named(repo); got != "" {
		t.Errorf("a clean tree: %s", got)
	}
	for _, name := range []string{"one", "two", "three", "four", "five", "six", "seven"} {
		if err := os.WriteFile(filepath.Join(repo, name+".txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{repo, below, "file://" + repo} {
		if got := named(path); strings.Count(got, ".txt") != maxUncommitted || !strings.Contains(got, "2 more") {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, path := range []string{"", "https://example.com/x.git"} {
		if got := named(path); got != "" {
			t.Errorf("%s: %s", path, got)
		}
	}
	_, err := uncommitted(t.Context(), outside)
	if exiterr.Code(err) != workorder.ExitNoProject || !strings.Contains(exiterr.Hint(err), "--workspace "+outside) {
		t.Errorf("%v, hint %q", err, exiterr.Hint(err))
	}
	env := &Env{Dir: outside, Getenv: func(string) string { return outside }}
	if _, err := env.Branches().List(t.Context(), false); exiterr.Code(err) != workorder.ExitNoProject {
		t.Error(err)
	}
	if rows, err := env.Branches().List(t.Context(), true); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

// The document of up --json has the spec's fields, with durations as strings, and the endpoints.
func TestUpJSON(t *testing.T) {
	t.Parallel()
	s := sandbox.Spec{Name: "dev", Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeNamed, IdleTimeout: 30 * time.Minute}
	const spec = `{"name":"dev","network":"none","limits":{"memory_bytes":0,"cpus":0,"pids":0},"lifetime":"named","idle_timeout":"30m"`
	for want, ports := range map[string][]Port{
		spec + `}`: nil,
		spec + `,"endpoints":{"3000":"127.0.0.1:4000"}}`: {{Port: 3000, Local: 4000}},
	} {
		if got, err := json.Marshal(Upped{Spec: s, Ports: ports}); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}
