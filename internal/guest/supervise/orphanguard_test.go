package supervise

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOrphanGuardCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := OrphanGuard{Dirs: []string{filepath.Join(dir, "none"), dir}}
	write("pids.current", "127\n")
	write("pids.max", "max\n")
	if c.Exhausted() {
		t.Error("a limit of none")
	}
	write("pids.max", "128\n")
	if now, most, ok := c.count(); !ok || now != 127 || most != 128 {
		t.Errorf("%d of %d, %t", now, most, ok)
	}
	// It is full of what runs, which is left alone.
	if c.Exhausted() {
		t.Error("no command has left any process")
	}
	c.KillOrphans()
}
