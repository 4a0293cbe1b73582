package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A root folder stays for as long as an artifact has a link to it, and for as long as one may be on its way.
func TestUnused(t *testing.T) {
	t.Parallel()
	state, place := t.TempDir(), filepath.Join(t.TempDir(), "artifact")
	root := filepath.Join(state, rootsDir, "abc")
	for _, dir := range []string{root, place} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := noteUser(root, place); err != nil {
		t.Fatal(err)
	}
	unused := func(want int) {
		t.Helper()
		if got, err := Unused(state); err != nil || len(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	unused(0)
	old := time.Now().Add(-2 * young)
	if err := os.Chtimes(root+usersOf, old, old); err != nil {
		t.Fatal(err)
	}
	unused(1)
	if err := os.Symlink(root, filepath.Join(place, rootLink)); err != nil {
		t.Fatal(err)
	}
	unused(0)
	if err := RemoveUnused(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	unused(1)
	if err := RemoveUnused(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(filepath.Dir(root), newRoot+"1") // of a build that was killed
	if err := os.Mkdir(half, 0o755); err != nil {
		t.Fatal(err)
	}
	unused(0)
	if err := os.Chtimes(half, old, old); err != nil {
		t.Fatal(err)
	}
	unused(1)
	if err := RemoveUnused(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(root)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if got, err := Unused(t.TempDir()); len(got) != 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", got, err)
	}
}
