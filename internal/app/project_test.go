package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A project that asks for nothing that a box alone has can be of each kind.
func TestBoxSpecOfOtherKinds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		yaml string
		code int
	}{
		"for agents":   {"secrets: {TOKEN: {from: env://TOKEN, for: agent}}\nharness: {name: command, command: cat}\nenv: {A: a, B: b}\n", workorder.ExitOK},
		"for commands": {"secrets: {TOKEN: {from: env://TOKEN, for: commands}}\n", workorder.ExitInvalid},
		"a gateway":    {"secrets: {ANTHROPIC_API_KEY: env://TOKEN}\n", workorder.ExitInvalid},
		"packages":     {"packages: [jq]\n", workorder.ExitInvalid},
		"setup":        {"lifecycle: {setup: [make]}\n", workorder.ExitInvalid},
		"a service":    {"services: {db: {image: redis}}\n", workorder.ExitInvalid},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "p.yaml")
		write(t, file, "name: p\n"+row.yaml)
		e := &Env{Dir: dir, Getenv: func(name string) string { return map[string]string{"HOME": dir, "TOKEN": "x"}[name] }}
		s := sandbox.Spec{Runtime: sandbox.RuntimeJail, Env: []string{"A=mine"}}
		err := e.Sandboxes().ApplyProject(t.Context(), &s, file, "", "")
		if exiterr.Code(err) != row.code || err == nil && (s.Box != nil || s.Project != file || !slices.Equal(s.Env, []string{"A=a", "B=b", "A=mine"})) {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
