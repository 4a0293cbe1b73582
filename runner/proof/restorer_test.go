package proof

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// Files that checks leave in a checkout are removed, except those that git ignores; files of setup stay.
func TestRestorer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, dir, "init", "-q", "--template=")
	for name, content := range map[string]string{"a": "a\n", "lock": "1\n", "gone": "g\n", "dir/b": "b\n", ".gitignore": "cache/\n"} {
		write(name, content)
	}
	gittest.Git(t, dir, "add", "-A")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write("lock", "of setup\n")
	write("made", "of setup\n")
	undo, err := (&stores{notes: &notes{}}).restorer(t.Context(), &side{tree: dir, root: root})
	if err != nil {
		t.Fatal(err)
	}
	write("a", "of a check\n")
	write("report.xml", "of a check\n")
	write("out/x", "of a check\n")
	write("cache/x", "of a check\n")
	write("lock", "of a check\n")
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "a\n", "gone": "g\n", "dir/b": "b\n", "made": "of setup\n", "report.xml": "", "out/x": "", "cache/x": "of a check\n",
		"lock": "of a check\n", // it differed before: its earlier content is unknown
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if string(b) != want || (want == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
