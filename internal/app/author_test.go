package app

import (
	"os"
	"path/filepath"
	"testing"
)

// Docs: docs/branches.md
func TestCommitAuthor(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	e := &Env{Getenv: func(name string) string { return map[string]string{"XDG_CONFIG_HOME": config}[name] }}
	check := func(given, want string, ok bool) {
		t.Helper()
		if got, err := commitAuthor(e, given); got != want || (err == nil) != ok {
			t.Errorf("%q, %v", got, err)
		}
	}
	check("", "", true)
	file := filepath.Join(config, "sandbox-agent", "config.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("author: Ann <ann@example.com>\n")
	check("", "Ann <ann@example.com>", true)
	check("Flag <flag@example.com>", "Flag <flag@example.com>", true)
	put("author: no address\n")
	check("Flag <flag@example.com>", "Flag <flag@example.com>", true)
	if _, err := commitAuthor(e, ""); err == nil {
		t.Error("a mistake is accepted")
	}
}
