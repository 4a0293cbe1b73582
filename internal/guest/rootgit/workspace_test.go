package rootgit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func space(t *testing.T) *Workspace {
	t.Helper()
	w := &Workspace{Dir: filepath.Join(t.TempDir(), "ws"), Home: t.TempDir(), GitConfig: filepath.Join(t.TempDir(), "gitconfig")}
	if err := w.Make(); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, w.Dir, "init", "-q", "-b", "main", "--template=")
	return w
}

// A shell has to read from .env what the project wrote, whatever it is.
func TestEnvFileIsReadBackByAShell(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"PLAIN": "postgres://u:p@db:5432/x", "EMPTY": "", "SPACES": " a  b ", "HASH": "a#b # c", "DOLLAR": "$HOME `id` $(id)",
		"QUOTES": `it's "so"`, "LINES": "a\nb\n", "BACKSLASH": `a\nb\\c`, "UNICODE": "é日本", "EQUALS": "a=b", "BOTH": "'\n$x\"`",
	}
	w := space(t)
	if warning, err := w.WriteEnvFile(t.Context(), env); err != nil || warning != "" {
		t.Fatalf("%q, %v", warning, err)
	}
	for k, want := range env {
		out, err := proc.Output(t.Context(), proc.Spec{
			Argv: []string{"/bin/sh", "-c", `set -a; . ./.env; printf %s. "$` + k + `"`}, Dir: w.Dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.TrimSuffix(string(out), ".")
		if k == "LINES" || k == "BOTH" {
			// A shell does not expand \n in double quotes; the dotenv readers do.
			got = strings.ReplaceAll(got, `\n`, "\n")
		}
		if got != want {
			t.Errorf("%s: a shell reads %q, want %q", k, got, want)
		}
	}
	st, err := os.Stat(filepath.Join(w.Dir, ".env"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if got := gittest.Git(t, w.Dir, "status", "--porcelain"); got != "" {
		t.Errorf("git sees %q", got)
	}
}

func TestEnvFileOfTheRepositoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	for name, make := range map[string]func(path string) error{
		"a file":         func(p string) error { return os.WriteFile(p, []byte("MINE=1\n"), 0o644) },
		"a link outside": func(p string) error { return os.Symlink(outside, p) },
	} {
		w := space(t)
		if err := make(filepath.Join(w.Dir, ".env")); err != nil {
			t.Fatal(err)
		}
		warning, err := w.WriteEnvFile(t.Context(), map[string]string{"A": "secret"})
		if err != nil || warning == "" {
			t.Errorf("%s: warning %q, %v", name, warning, err)
		}
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("the file behind the link was written")
	}
}

func TestConfigureGit(t *testing.T) {
	t.Parallel()
	w := space(t)
	remote := `https://example.org/a "b"\c`
	if err := w.ConfigureGit(workorder.Identity{Name: `A "quoted" \ name`, Email: "a@b"}, []string{"/work space", "/m"}, remote, "http://127.0.0.1:1/origin"); err != nil {
		t.Fatal(err)
	}
	get := func(key string) string {
		out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"git", "config", "--file", w.GitConfig, "--get-all", key}})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	for key, want := range map[string]string{
		"safe.directory": "/work space\n/m", "user.name": `A "quoted" \ name`, "user.email": "a@b",
		"url.http://127.0.0.1:1/origin.insteadof": remote,
	} {
		if got := get(key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
}
