package rootgit

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// tree lists a commit of the remote: mode and path, one per line.
func (f *fixture) tree(t *testing.T, commit string) string {
	t.Helper()
	return gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "-r", "--format=%(objectmode) %(path)", commit)
}

const generator = `
mkdir app; cd app; git init -q
printf 'dist\n' >.gitignore; echo hidden >>.git/info/exclude; mkdir dist
echo 1 >tracked; echo 2 >gone; echo 3 >dist/forced; git add .; git add -f dist/forced; git commit -qm own
rm gone; echo more >untracked; echo no >dist/built; echo no >hidden; chmod +x untracked
mkdir -p deep/er; cd deep/er; git init -q; git commit -q --allow-empty -m x; echo d >file
cd ../../..; git init -q empty; echo a >a`

const generated = `100755 README
100644 a
100644 app/.gitignore
100644 app/deep/er/file
100644 app/dist/forced
100644 app/tracked
100755 app/untracked`

// A generator that ends with git init does not cost its files: they are ours.
func TestRepositoryInsideTheWorkTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.sh(t, generator)
	for range 2 { // the index knows them the second time
		if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
			t.Fatalf("saved %+v", s)
		}
	}
	if got := f.tree(t, f.Ledger.Checkpoint.SHA); got != generated {
		t.Errorf("the checkpoint has\n%s", got)
	}
	f.sh(t, "rm app/dist/forced; echo late >app/late; echo changed >app/tracked")
	want := strings.ReplaceAll(generated, "100644 app/dist/forced\n", "100644 app/late\n")
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || f.tree(t, f.Ledger.Checkpoint.SHA) != want {
		t.Errorf("saved %+v, the checkpoint has\n%s", s, f.tree(t, f.Ledger.Checkpoint.SHA))
	}
	n, _, r := f.next(t)
	if !r.Verified || n.sh(t, "cat app/tracked app/deep/er/file") != "changed\nd\n" {
		t.Errorf("restored %+v", r)
	}
	l := n.land(t)
	if got := n.tree(t, l.Head); l.Err != nil || got != want {
		t.Errorf("landed %+v\n%s", l, got)
	}
}

// Neither is it where the agent committed no more than the repository's id.
func TestRepositoryThatTheAgentCommitted(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]bool{"landing": false, "landing after a checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.sh(t, generator+"; rm -rf empty; git add -A; git commit -qm all")
			if save {
				if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil || f.Ledger.Checkpoint == nil {
					t.Fatalf("saved %+v", s)
				}
				if got := f.tree(t, f.Ledger.Checkpoint.SHA); got != generated {
					t.Errorf("the checkpoint has\n%s", got)
				}
				f = f.rescue(t)
			}
			l := f.land(t)
			if got := f.tree(t, l.Head); l.Err != nil || got != generated {
				t.Errorf("landed %+v\n%s", l, got)
			}
			if len(l.Warnings) != 1 || !strings.HasPrefix(l.Warnings[0], "app, app/deep/er: ") {
				t.Errorf("warnings %q", l.Warnings)
			}
		})
	}
}

// A submodule of the project stays one; what the agent changed in it is kept as files.
func TestSubmoduleWithChanges(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	srv.Create(t, "sub.git", map[string]string{"lib": "1", "other": "2"})
	dir := t.TempDir()
	gittest.Git(t, dir, "clone", "-q", srv.Root+"/r.git", "c")
	c := filepath.Join(dir, "c")
	gittest.Git(t, c, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", srv.Root+"/sub.git", "sub")
	gittest.Git(t, c, "commit", "-q", "-m", "sub")
	gittest.Git(t, c, "push", "-q", "origin", "HEAD:main")
	f := newBox(t, srv, workorder.ModeCreate)
	f.start(t)
	f.write(t, "a", "1")
	f.sh(t, "git -c protocol.file.allow=always submodule --quiet update --init")
	if err := f.Committer.Commit(t.Context(), says("clean")); err != nil {
		t.Fatal(err)
	}
	f.sh(t, "cd sub; echo unpushed >lib; git commit -qam unpushed; echo new >new")
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{"sub/lib", "sub/new"}) {
		t.Fatalf("left %v", err)
	}
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, false); err != nil {
		t.Fatal(err)
	}
	if got := untar(t, archive, "sub/lib") + untar(t, archive, "sub/new"); got != "unpushed\nnew\n" {
		t.Errorf("the archive has %q", got)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
	if got := f.tree(t, l.Head); l.Err != nil || !strings.Contains(got, "160000 sub") || strings.Contains(got, "sub/") {
		t.Errorf("landed %+v\n%s", l, got)
	}
}

// Another work tree of the same repository is no part of the branch; what is uncommitted in it is kept as files.
func TestSecondWorkTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.sh(t, "git worktree add -q -b side wt; echo w >wt/w; echo a >a")
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{"wt/w"}) {
		t.Fatalf("left %v", err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, nil); l.Err != nil || f.tree(t, l.Head) != "100755 README\n100644 a" {
		t.Errorf("landed %+v", l)
	}
}
