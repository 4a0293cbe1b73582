package rootgit

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
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
	if err := os.RemoveAll(filepath.Join(first.Repos.Workspace, ".git")); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "uncommitted.tar.gz")
	if err := first.Committer.Archive(t.Context(), archive, true); err != nil {
		t.Fatal(err)
	}
	f := newBox(t, srv, workorder.ModeContinue)
	f.Repos.Order.Ended = []string{first.Repos.Order.AttemptID}
	f.start(t)
	head := f.remote(t, workorder.StateRef("T-A1B2C3D4"))
	if !f.Committer.Unarchive(t.Context(), archive) {
		t.Error("nothing is said to have come back")
	}
	if b, err := os.ReadFile(filepath.Join(f.Repos.Workspace, "kept/ü\n x")); err != nil || string(b) != "work\n" {
		t.Errorf("%q, %v", b, err)
	}
	if head == "" || gittest.Git(t, f.Repos.Workspace, "status", "--porcelain") == "" {
		t.Error("the repository is not whole any more")
	}
	if f.Committer.Unarchive(t.Context(), archive+".missing") {
		t.Error("something is said to have come back")
	}
	if f.saw(workorder.EventWarning, "") != 2 {
		t.Errorf("events %+v", f.seen())
	}
}

// Folders in folders in folders keep nothing else from coming back, and no .git does, wherever it lies.
func TestDeepArchiveComesBack(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	b := newBox(t, srv, workorder.ModeCreate)
	b.start(t)
	archive := filepath.Join(t.TempDir(), "uncommitted.tar.gz")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	deep := "deep/" + strings.Repeat("d/", 1000)
	for _, name := range []string{deep, deep + "bottom", "sub/.git/config", ".git/HEAD", "small", "bad-\xff"} {
		h := &tar.Header{Name: name, Mode: 0o644, Size: 2, Typeflag: tar.TypeReg, Format: tar.FormatGNU}
		if strings.HasSuffix(name, "/") {
			h.Mode, h.Size, h.Typeflag = 0o755, 0, tar.TypeDir
		}
		err = errors.Join(err, w.WriteHeader(h))
		if h.Size > 0 {
			_, werr := w.Write([]byte("x\n"))
			err = errors.Join(err, werr)
		}
	}
	if err := errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	before := gittest.Git(t, b.Repos.Workspace, "rev-parse", "HEAD")
	b.Committer.Unarchive(t.Context(), archive)
	for _, name := range []string{deep + "bottom", "small", "bad-\xff"} {
		if got, err := os.ReadFile(filepath.Join(b.Repos.Workspace, name)); err != nil || string(got) != "x\n" {
			t.Errorf("%.20q: %q, %v", name, got, err)
		}
	}
	if _, err := os.Stat(
		filepath.Join(b.Repos.Workspace, "sub/.git"),
	); err == nil ||
		gittest.Git(t, b.Repos.Workspace, "rev-parse", "HEAD") != before {
		t.Error("a .git came with the archive")
	}
}

// What came from an archive is the agent's work, and not a file of the setup that runs after it.
func TestArchiveIsNotOfSetup(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"tracked": "base\n"})
	f.write(t, "tracked", "work\n")
	f.write(t, "new/ü x", "work\n")
	f.write(t, "out/report", "work\n")
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, false); err != nil {
		t.Fatal(err)
	}
	f.Heartbeat.Stop()
	n, _, _ := f.next(t)
	n.Committer.Unarchive(t.Context(), archive)
	n.write(t, "of-setup", "setup\n")
	n.write(t, "node_modules/x/y", "setup\n")
	if _, err := n.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := " M tracked\x00?? new/ü x\x00?? out/report\x00"
	if got := n.sh(t, "git status --porcelain -z --untracked-files=all"); got != want {
		t.Errorf("the agent's git shows %q, want %q", got, want)
	}
	n.sh(t, "git add -A; git commit -qm work")
	head := gittest.Git(t, n.Repos.Workspace, "rev-parse", "HEAD")
	if got := gittest.Git(t, n.Repos.Workspace, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", head); got != "new/ü x\nout/report\ntracked" {
		t.Errorf("committed %q", got)
	}
	if got := n.sh(t, "git show HEAD:tracked"); strings.TrimSpace(got) != "work" {
		t.Errorf("tracked is %q", got)
	}
}
