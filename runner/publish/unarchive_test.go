package publish

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A box whose .git is gone keeps its files as an archive; the next one has them again.
func TestArchiveComesBack(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := newBox(t, srv, workorder.ModeCreate)
	first.start(t)
	first.write(t, "kept/ü\n x", "work\n")
	if err := os.RemoveAll(filepath.Join(first.Workspace, ".git")); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "uncommitted.tar.gz")
	if err := first.Archive(t.Context(), archive, true); err != nil {
		t.Fatal(err)
	}
	f := newBox(t, srv, workorder.ModeContinue)
	f.Order.Ended = []string{first.Order.AttemptID}
	f.start(t)
	head := f.remote(t, workorder.StateRef("T-A1B2C3D4"))
	f.Unarchive(t.Context(), archive)
	if b, err := os.ReadFile(filepath.Join(f.Workspace, "kept/ü\n x")); err != nil || string(b) != "work\n" {
		t.Errorf("%q, %v", b, err)
	}
	if head == "" || gittest.Git(t, f.Workspace, "status", "--porcelain") == "" {
		t.Error("the repository is not whole any more")
	}
	f.Unarchive(t.Context(), archive+".missing")
	if f.saw(workorder.EventWarning, "") != 2 {
		t.Errorf("events %+v", f.seen())
	}
}
