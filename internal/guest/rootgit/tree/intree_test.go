package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// The names of an archive are bounded, and a link leads nowhere.
func TestInTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(root, "d", strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	paths, cut := inTree(t.Context(), root, 100)
	slices.Sort(paths)
	if want := []string{"./d", "./d/0", "./d/1", "./d/2", "./d/3", "./d/4", "./out"}; cut || !slices.Equal(paths, want) {
		t.Errorf("%q, %v", paths, cut)
	}
	if paths, cut := inTree(t.Context(), root, 3); !cut || len(paths) != 3 {
		t.Errorf("%q, %v", paths, cut)
	}
}
