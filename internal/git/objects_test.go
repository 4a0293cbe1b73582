package git_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// What is written without git is what git itself writes.
func TestObjects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "r.git")
	for range 2 {
		if err := git.InitBare(dir); err != nil {
			t.Fatal(err)
		}
	}
	r := git.Repo{Dir: dir, Bare: true}
	files := map[string]string{}
	for name, content := range map[string]string{"a": "", "a.b": "1", "a/x/y": "2\n", "a/x.y": "1", "z": strings.Repeat("long", 1<<16)} {
		id, err := r.WriteBlob([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		in := r
		in.Stdin = content
		if out, err := in.Output(t.Context(), "hash-object", "--stdin"); err != nil || strings.TrimSpace(string(out)) != id {
			t.Errorf("%s: %s, git says %s, %v", name, id, out, err)
		}
		if name != "a" { // a file and a directory of one name
			files[name] = id
		}
	}
	const who = "sandbox-agent <sandbox-agent@localhost>"
	first, err := r.WriteCommit(nil, who, "none", "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.WriteCommit(files, who, "all\n\nof them", first)
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"a.b\na/x.y\na/x/y\nz":                  {"ls-tree", "-r", "--name-only", second},
		first:                                   {"rev-parse", second + "^"},
		"all\n\nof them":                        {"log", "-1", "--format=%B", second},
		"sandbox-agent sandbox-agent@localhost": {"log", "-1", "--format=%an %ce", second},
		"2":                                     {"cat-file", "blob", second + ":a/x/y"},
		"":                                      {"fsck", "--strict", "--no-dangling", "--no-progress"},
	} {
		out, err := r.Output(t.Context(), args...)
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q: %q, %v, want %q", args, out, err, want)
		}
	}
}
