package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What a sandbox has left in place of a file of its git directory leads to no file outside of it.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "git"), 0o755), os.WriteFile(outside, []byte("precious"), 0o644),
		os.Symlink(outside, filepath.Join(dir, "git", "config")), os.Symlink(filepath.Dir(outside), filepath.Join(dir, "git", "info"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := replace(root, "git/config", "new"); err != nil {
		t.Error(err)
	}
	if err := replace(root, "git/info/outside", "new"); err == nil {
		t.Error("a directory outside was written to")
	}
	got, err := os.ReadFile(filepath.Join(dir, "git", "config"))
	kept, kerr := os.ReadFile(outside)
	if err != nil || kerr != nil || string(got) != "new" || string(kept) != "precious" {
		t.Errorf("%q, %q, %v, %v", got, kept, err, kerr)
	}
}
