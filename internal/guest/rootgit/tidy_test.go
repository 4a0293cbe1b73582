package rootgit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What checks leave in the work tree before the agent begins is gone, but for what git ignores; what setup left stays.
func TestTidier(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"a": "a\n", "lock": "1\n", "gone": "g\n", "dir/b": "b\n", ".gitignore": "cache/\n"})
	write := func(name, content string) {
		t.Helper()
		at := filepath.Join(f.Repos.Workspace, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("lock", "of setup\n")
	write("made", "of setup\n")
	undo, err := f.Work.Restorer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write("a", "of a check\n")
	write("report.xml", "of a check\n")
	write("out/x", "of a check\n")
	write("cache/x", "of a check\n")
	write("lock", "of a check\n")
	if err := os.Remove(filepath.Join(f.Repos.Workspace, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "a\n", "gone": "g\n", "dir/b": "b\n", "made": "of setup\n", "report.xml": "", "out/x": "", "cache/x": "of a check\n",
		"lock": "of a check\n", // it differed before: its earlier content is unknown
	} {
		b, err := os.ReadFile(filepath.Join(f.Repos.Workspace, name))
		if string(b) != want || (want == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
