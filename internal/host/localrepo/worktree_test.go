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

// A submodule's files are none of the work tree's, as they are none of a commit's.
func TestWorkTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".git/HEAD", "go.mod", "a/go.mod", "lib/.git", "lib/go.mod", "lib/b/go.mod", "a/deep/.git/HEAD", "a/deep/go.mod"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree := localrepo.WorkTree(root)
	for _, name := range []string{".git/HEAD", "go.mod", "a/go.mod"} {
		if b, err := fs.ReadFile(tree, name); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"lib/.git", "lib/go.mod", "lib/b", "lib/b/go.mod", "a/deep/go.mod"} {
		for how, err := range map[string]error{
			"open": second(tree.Open(name)), "stat": second(fs.Stat(tree, name)), "lstat": second(fs.Lstat(tree, name)),
			"list": second(fs.ReadDir(tree, name)), "link": second(fs.ReadLink(tree, name)),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s: %v", how, name, err)
			}
		}
	}
	for _, name := range []string{"lib", "a/deep"} {
		if st, err := fs.Stat(tree, name); err != nil || st.Mode() != fs.ModeIrregular || st.Name() != filepath.Base(name) {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if st, err := fs.Lstat(tree, name); err != nil || st.IsDir() {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	list, err := fs.ReadDir(tree, ".")
	if err != nil {
		t.Fatal(err)
	}
	kinds := fstest.MapFS{}
	for _, e := range list {
		kinds[e.Name()] = &fstest.MapFile{Mode: e.Type()}
	}
	if kinds["lib"].Mode != fs.ModeIrregular || kinds["a"].Mode != fs.ModeDir || kinds["go.mod"].Mode != 0 {
		t.Errorf("listed as %v", list)
	}
}

func second[T any](_ T, err error) error { return err }
