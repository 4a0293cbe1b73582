package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// An archive of files that tar could not read, which tar reports as success, does not count: no file is
// reported as kept.
func TestEmptyArchiveIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		files string
		want  error
	}{"none": {"gone", errEmpty}, "some": {"gone\x00there", nil}} {
		archive := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(archive)
		if err != nil {
			t.Fatal(err)
		}
		err = proc.Run(t.Context(), proc.Spec{Argv: archiver("--no-recursion"), Dir: dir, Stdin: strings.NewReader(c.files), Stdout: f})
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := holdsAny(archive); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
