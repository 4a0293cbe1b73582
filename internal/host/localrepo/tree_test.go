package localrepo_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
)

func TestTree(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	if err := os.MkdirAll(filepath.Join(repo, "a", "b"), 0o750); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(repo, "a.x"), nil) // which git sorts before the folder a
	write(t, filepath.Join(repo, "a", "b", "deep.txt"), []byte("deep"))
	write(t, filepath.Join(repo, "top.txt"), []byte("top"))
	if err := os.Symlink("/etc/passwd", filepath.Join(repo, "link")); err != nil {
		t.Fatal(err)
	}
	must(t, repo, "add", "-A")
	must(t, repo, "commit", "-q", "-m", "files")
	write(t, filepath.Join(repo, "top.txt"), []byte("changed, not committed"))
	r, err := localrepo.Open(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(t.Context(), "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := fs.ReadFile(tree, "top.txt"); err != nil || string(b) != "top" {
		t.Errorf("top.txt is %q, %v", b, err)
	}
	if b, err := fs.ReadFile(tree, "a/b/deep.txt"); err != nil || string(b) != "deep" {
		t.Errorf("a/b/deep.txt is %q, %v", b, err)
	}
	if _, err := fs.ReadFile(tree, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := fs.ReadFile(tree, "link"); err == nil {
		t.Error("a link is read")
	}
	must(t, repo, "rm", "-q", "--cached", "link")
	must(t, repo, "commit", "-q", "-m", "no link")
	if tree, err = r.Tree(t.Context(), "HEAD"); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(tree, "top.txt", "a/b/deep.txt"); err != nil {
		t.Error(err)
	}
	if _, err := r.Tree(t.Context(), "--output=x"); err == nil {
		t.Error("an option is a revision")
	}
}
