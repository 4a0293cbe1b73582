package rootgit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A file that there is no time for does not take the others with it.
func TestLargeFilesComeLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "small", "abc")
	f.sh(t, "truncate -s 60G huge; mkdir d; truncate -s 20M d/middle")
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
		t.Fatalf("saved %+v", s)
	}
	f.Saver.Save(t.Context(), true)
	if got := f.tree(t, f.Ledger.Checkpoint.SHA); got != "100755 README\n100644 d/middle\n100644 small" {
		t.Errorf("the checkpoint has\n%s", got)
	}
	if n := f.saw(workorder.EventWarning, ""); n != 1 {
		t.Errorf("%d warnings", n)
	}
	f.write(t, "late", "abc")
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{"huge"}) {
		t.Fatalf("left %v", err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
	if got := f.tree(t, l.Head); l.Err != nil || got != "100755 README\n100644 d/middle\n100644 late\n100644 small" {
		t.Errorf("landed %+v\n%s", l, got)
	}
}

// A file that a filter cannot take is taken as it is.
func TestFilterThatFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.sh(t, `git config filter.r.clean false; git config filter.r.required true; git config filter.up.clean 'tr a-z A-Z'
printf '*.r filter=r\n*.up filter=up\n*.utf working-tree-encoding=UTF-16\n' >.gitattributes
echo r >x.r; echo up >x.up; printf odd >x.utf; echo a >a; mkdir git~1; echo x >git~1/x`)
	s := f.Saver.Save(t.Context(), true)
	if s.SnapErr == nil || s.PushErr != nil || f.Ledger.Checkpoint == nil {
		t.Fatalf("saved %+v: %v", s, s.SnapErr)
	}
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Contains(left.Paths, "git~1/x") {
		t.Fatalf("left %v", err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
	show := func(path string) string { return gittest.Git(t, f.srv.Root+"/r.git", "show", l.Head+":"+path) }
	if l.Err != nil || show("x.r") != "r" || show("a") != "a" {
		t.Errorf("landed %+v", l)
	}
	// In a git older than 2.41 the encoding cannot be switched off.
	if named := slices.Contains(left.Paths, "x.utf"); named == strings.Contains(f.tree(t, l.Head), "x.utf") {
		t.Errorf("x.utf is neither, or both, on the branch and named: %v", left)
	}
	if show("x.up") == "" {
		t.Error("x.up is empty")
	}
}

// Modes, and pipes at the paths of git's rules, do not prevent a save.
func TestTreeThatGitCannotEnter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	f.sh(t, "mkdir -p d/e; mkfifo d/.gitignore d/e/.gitattributes .gitmodules; chmod 000 .")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Committer.Commit(ctx, says("leftovers")); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, nil); l.Err != nil || f.tree(t, l.Head) != "100755 README\n100644 a" {
		t.Errorf("landed %+v", l)
	}
	f.sh(t, "chmod 000 .; echo 2 >../b; ls")
	if err := os.Rename(filepath.Join(f.Repos.Workspace, "../b"), filepath.Join(f.Repos.Workspace, "b")); err != nil {
		t.Fatal(err)
	}
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil || f.Ledger.Checkpoint == nil {
		t.Errorf("saved %+v", s)
	}
}

// Objects of Git LFS that were not pushed are reported and kept as files.
func TestObjectsOfLFSAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.sh(t, "mkdir -p .git/lfs/objects/ab/cd; printf precious >.git/lfs/objects/ab/cd/abcd; echo a >a")
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{".git/lfs/objects"}) || !strings.HasPrefix(left.Reason, "1 ") {
		t.Fatalf("left %v", err)
	}
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, false); err != nil {
		t.Fatal(err)
	}
	if got := untar(t, archive, ".git/lfs/objects/ab/cd/abcd"); got != "precious" {
		t.Errorf("the archive has %q", got)
	}
}

// A file that is larger than any forge takes, sparse or not, is named and left out before it is read; the others land, also where
// the repository is broken.
func TestSparseFile(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"whole repository": false, "broken HEAD": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.write(t, "small", "small")
			f.write(t, "sparse", "")
			if err := os.Truncate(filepath.Join(f.Repos.Workspace, "sparse"), 300<<30); err != nil {
				t.Fatal(err)
			}
			if broken {
				f.write(t, ".git/HEAD", "nonsense\n")
			}
			err := f.Committer.Commit(t.Context(), says("leftovers"))
			archive := filepath.Join(t.TempDir(), "a.tar.gz")
			aerr := f.Committer.Archive(t.Context(), archive, broken)
			if broken {
				if err == nil || aerr != nil {
					t.Fatalf("commit: %v, archive: %v", err, aerr)
				}
				if st, err := os.Stat(archive); err != nil || st.Size() > 1<<20 {
					t.Errorf("the archive: %+v %v", st, err)
				}
				return
			}
			var left *tree.UncommittedError
			if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{"sparse"}) || !errors.Is(aerr, tree.ErrTooLarge) {
				t.Fatalf("commit: %v, archive: %v", err, aerr)
			}
			l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
			if files := gittest.Git(
				t,
				f.srv.Repo("r.git").Dir,
				"ls-tree",
				"-r",
				"--name-only",
				target,
			); !l.Pushed ||
				files != "README\nsmall" {
				t.Errorf("landed %q: %+v", files, l)
			}
		})
	}
}

// A checkpoint took a file when it was small. When it cannot be staged any more, the commit that keeps what is left, and the next
// checkpoint, have what the agent has committed of it since, and not the old content.
func TestLeftFileIsAsCommitted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "big", "begun")
	f.write(t, "new", "begun")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	f.write(t, "big", "whole")
	gittest.Git(t, f.Repos.Workspace, "add", "big")
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", "big")
	f.write(t, "small", "left")
	for _, name := range []string{"big", "new"} { // sparse: larger than what is committed for an agent
		if err := os.Truncate(filepath.Join(f.Repos.Workspace, name), 600<<20); err != nil {
			t.Fatal(err)
		}
	}
	const want = "100755 README\n100644 big\n100644 small"
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	at := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
	if got, big := f.tree(t, at), gittest.Git(t, f.srv.Root+"/r.git", "show", at+":big"); got != want || big != "whole" {
		t.Errorf("the checkpoint has %q, and\n%s", big, got)
	}
	var left *tree.UncommittedError
	if err := f.Committer.Commit(t.Context(), says("leftovers")); !errors.As(err, &left) || len(left.Paths) != 2 {
		t.Fatalf("left %v", err)
	}
	head := gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
	got := gittest.Git(t, f.Repos.Workspace, "ls-tree", "-r", "--format=%(objectmode) %(path)", head)
	if big := gittest.Git(t, f.Repos.Workspace, "show", "HEAD:big"); got != want || big != "whole" {
		t.Errorf("the commit has %q, and\n%s", big, got)
	}
}
