package rootgit

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// At a stop, small changes reach the remote though the large commit before them does not.
func TestSmallFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"README": "hello\n", "gone": "x"})
	f.write(t, "setup", "left by setup")
	if _, err := f.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.write(t, "big", strings.Repeat("0123456789abcdef", tree.FirstFile/8))
	f.write(t, "committed", "committed")
	gittest.Git(t, f.Repos.Workspace, "rm", "-q", "gone")
	gittest.Git(t, f.Repos.Workspace, "add", "big", "committed")
	gittest.Git(t, f.Repos.Workspace, "commit", "-qm", "large")
	f.write(t, "uncommitted", "uncommitted")
	branch := workorder.BranchRef(target)
	f.srv.Refuse(t, "r.git", branch) // what a line that is too slow does to it
	f.Stop.Announce(workorder.BundleGrace)
	f.Saver.Save(t.Context(), true)
	first := f.remote(t, f.Saver.SmallChangesRef())
	if first == "" {
		t.Fatalf("nothing went first: %+v", f.seen())
	}
	files := gittest.Git(t, f.srv.Repo("r.git").Dir, "ls-tree", "-r", "--name-only", first)
	if want := "README\ncommitted\nuncommitted"; files != want {
		t.Errorf("it has %q, want %q", files, want)
	}
}

// Where all of it lands, what went first is removed again; without a stop, or without large changes, nothing does.
func TestSmallFirstIsRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size    int
		stopped bool
	}{"a large change": {2 * tree.FirstFile, true}, "no large change": {10, true}, "no stop": {2 * tree.FirstFile, false}} {
		f := newFixture(t, nil)
		f.write(t, "big", strings.Repeat("x", c.size))
		f.write(t, "small", "small")
		if c.stopped {
			f.Stop.Announce(workorder.BundleGrace)
		}
		f.Saver.Save(t.Context(), true)
		if first, want := f.remote(t, f.Saver.SmallChangesRef()), c.stopped && c.size > tree.FirstFile; (first != "") != want {
			t.Errorf("%s: first %q", name, first)
		}
		if l := f.land(t); l.Err != nil || !l.Pushed {
			t.Fatalf("%s: %+v", name, l)
		}
		if first := f.remote(t, f.Saver.SmallChangesRef()); first != "" {
			t.Errorf("%s: %s is left", name, first)
		}
	}
}
