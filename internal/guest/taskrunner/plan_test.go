package taskrunner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The plan's folder is the agent's: what lies there may be anything.
func TestRead(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
		err  bool
	}{
		"a plan":  {func(p string) error { return os.WriteFile(p, []byte("# Plan\x00\n"), 0o600) }, "# Plan\n", false},
		"nothing": {func(string) error { return nil }, "", true},
		"a link":  {func(p string) error { return os.Symlink(secret, p) }, "", true},
		"two names": {func(p string) error {
			beside := filepath.Join(filepath.Dir(p), "beside")
			return errors.Join(os.WriteFile(beside, []byte("root's"), 0o600), os.Link(beside, p))
		}, "", true},
		"a pipe":     {func(p string) error { return syscall.Mkfifo(p, 0o600) }, "", true},
		"a folder":   {func(p string) error { return os.Mkdir(p, 0o700) }, "", true},
		"too much":   {func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("x", workorder.MaxPlan+1)), 0o600) }, "", true},
		"not a text": {func(p string) error { return os.WriteFile(p, []byte{0xff, 0xfe}, 0o600) }, "", true},
		"the largest": {
			func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("x", workorder.MaxPlan)), 0o600) },
			strings.Repeat("x", workorder.MaxPlan), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := c.make(filepath.Join(dir, workorder.PlanFile)); err != nil {
				t.Fatal(err)
			}
			got, err := readPlan(dir, nil)
			// Only where there is none do the agent's last words stand in for it.
			if got != c.want || (err != nil) != c.err || errors.Is(err, fs.ErrNotExist) != (name == "nothing") {
				t.Errorf("%.40q, %v", got, err)
			}
		})
	}
}

// The last words stand in for a plan that was not written; what hides in either, and secrets, are not kept.
func TestTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, last, want string }{
		"written":    {"# Plan\nuse s3cret\n", "done", "# Plan\nuse ***\n"},
		"last words": {" \n", "first this", "first this\n"},
		"neither":    {"", " ", ""},
		"hidden":     {"\u200b\u202e", "done", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			desk, out := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(desk, workorder.PlanFile), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			text, path, err := collectPlan(desk, nil, c.last, out, func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") })
			if text != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("%q, %v", text, err)
			}
			if err != nil {
				return
			}
			if b, err := os.ReadFile(filepath.Join(out, path)); err != nil || string(b) != text {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}
