package rootgit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// made is what a script makes of the remote's repository; its last line is an id.
func (f *fixture) made(t *testing.T, script string) string {
	t.Helper()
	out, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"/bin/bash", "-ec", script}, Dir: f.srv.Root + "/r.git", Env: append(f.Repos.Identity(), "PATH="+os.Getenv("PATH")),
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

const (
	aBlob  = `echo garbage | git hash-object -w --stdin`
	aTree  = `git rev-parse 'HEAD^{tree}'`
	emptyC = `git commit-tree -m x 4b825dc642cb6eb9a060e54bf8d69288fbee4904`
)

// A state that cannot be read costs what it said, not the task.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a blob": aBlob, "a tree": aTree, "no file": emptyC,
		"foreign": `git commit-tree -m x $(printf '100644 blob %s\tstate.json\n' $(echo '{"a":1}' | git hash-object -w --stdin) | git mktree)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.write(t, "a", "1")
			if l := f.land(t); l.Err != nil {
				t.Fatal(l.Err)
			}
			f.Heartbeat.Stop()
			bad := f.made(t, "git hash-object -w --stdin </dev/null >/dev/null; "+script)
			gittest.Git(t, f.srv.Root+"/r.git", "update-ref", workorder.StateRef("T-A1B2C3D4"), bad)
			n, c, _ := f.next(t)
			if !c.Continues || c.BaseSHA != f.base || c.State.TargetBranch != target || n.sh(t, "cat a") != "1" {
				t.Errorf("claimed %+v", c)
			}
			if n.saw(workorder.EventWarning, "") != 1 {
				t.Errorf("events %+v", n.seen())
			}
			n.write(t, "b", "2")
			if l := n.land(t); l.Err != nil || !l.Pushed {
				t.Errorf("landed %+v", l)
			}
			if got := gittest.Git(t, n.srv.Root+"/r.git", "rev-parse", workorder.KeptRef("T-A1B2C3D4", "state-"+bad[:12])); got != bad {
				t.Errorf("kept %q, want %s", got, bad)
			}
		})
	}
}

// A state of a later version is not ours to replace.
func TestStateOfALaterVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Heartbeat.Stop()
	bad := f.made(
		t,
		`git commit-tree -m x $(printf '100644 blob %s\tstate.json\n' $(echo '{"version":1000}' | git hash-object -w --stdin) | git mktree)`,
	)
	gittest.Git(t, f.srv.Root+"/r.git", "update-ref", workorder.StateRef("T-A1B2C3D4"), bad)
	n := newBox(t, f.srv, workorder.ModeContinue)
	base, sha, err := n.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Claimer.Claim(
		t.Context(),
		base,
		sha,
	); err == nil || !strings.Contains(err.Error(), "1000") ||
		f.remote(t, workorder.StateRef("T-A1B2C3D4")) != bad {
		t.Errorf("got %v", err)
	}
}

// Where only a checkpoint is left, the task is known by it.
func TestOnlyACheckpointIsLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil {
		t.Fatal(s.PushErr)
	}
	f.Heartbeat.Stop()
	gittest.Git(t, f.srv.Root+"/r.git", "update-ref", "-d", workorder.StateRef("T-A1B2C3D4"))
	n, c, r := f.next(t)
	if !c.Continues || c.BaseSHA != f.base || r == nil || !r.Verified || n.sh(t, "cat a") != "1" {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
}

// A checkpoint that cannot be used is kept, and the branch goes on.
func TestDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a blob": aBlob, "a tree": aTree, "no parent": emptyC,
		"a .git in it": `t=$(printf '100644 blob %s\tconfig\n' $(echo x | git hash-object -w --stdin) | git mktree); ` +
			`git commit-tree -p refs/heads/` + target + ` -m x $(printf '040000 tree %s\t.git\n' $t | git mktree)`,
		"a file .git": `git commit-tree -p refs/heads/` + target +
			` -m x $(printf '100644 blob %s\t.git\n' $(echo x | git hash-object -w --stdin) | git mktree)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.write(t, "a", "1")
			if l := f.land(t); l.Err != nil {
				t.Fatal(l.Err)
			}
			bad := f.made(t, script)
			gittest.Git(t, f.srv.Root+"/r.git", "update-ref", workorder.CheckpointRef("T-A1B2C3D4"), bad)
			n, _, r := f.next(t)
			kept := workorder.KeptRef("T-A1B2C3D4", "checkpoint-"+bad[:12])
			if r == nil || r.Kept != kept || n.sh(t, "cat a; git status --porcelain") != "1" || n.saw(workorder.EventWarning, "") != 1 {
				t.Fatalf("restored %+v, events %+v", r, n.seen())
			}
			n.write(t, "b", "2")
			if s := n.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
				t.Errorf("saved %+v", s)
			}
			if l := n.land(t); l.Err != nil || !l.Pushed {
				t.Errorf("landed %+v", l)
			}
			if got := gittest.Git(t, n.srv.Root+"/r.git", "rev-parse", kept); got != bad {
				t.Errorf("kept %q, want %s", got, bad)
			}
		})
	}
}

// The base branch may have gone by the time that a task goes on.
func TestBaseBranchIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	if l := f.land(t); l.Err != nil {
		t.Fatal(l.Err)
	}
	gittest.Git(t, f.srv.Root+"/r.git", "update-ref", "-d", "refs/heads/main")
	for _, named := range []string{"", "main"} {
		n := newBox(t, f.srv, workorder.ModeContinue)
		n.Repos.Order.Ended, n.Repos.Order.Branch = []string{f.Repos.Order.AttemptID}, named
		base, sha, err := n.Claimer.Fetch(t.Context())
		if err != nil || base != "main" || sha != f.base {
			t.Fatalf("fetched %q %q: %v", base, sha, err)
		}
	}
	n := newBox(t, f.srv, workorder.ModeContinue)
	n.Repos.Order.Ended = []string{f.Repos.Order.AttemptID}
	base, sha, err := n.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.Claimer.Claim(t.Context(), base, sha)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Checkpoints.Checkout(t.Context(), c); err != nil || n.sh(t, "cat a") != "1" {
		t.Errorf("checked out %+v: %v", c, err)
	}
	// A new task has nothing to begin with.
	n = newBox(t, f.srv, workorder.ModeCreate)
	if _, _, err := n.Claimer.Fetch(t.Context()); err == nil {
		t.Error("a branch that is not there was found")
	}
}

// A filter that fails costs its work, not the run: the files are there as git stores them.
func TestFilterThatCannotRestore(t *testing.T) {
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", map[string]string{".gitattributes": "*.big filter=lfs\n", "a.big": "pointer", "z": "z"})
	bin := t.TempDir()
	system := filepath.Join(bin, "gitconfig")
	if err := os.WriteFile(system, []byte("[filter \"lfs\"]\n\tclean = cat\n\tsmudge = false\n\trequired = true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	where, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"/bin/sh", "-c", "command -v git"}})
	if err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\nGIT_CONFIG_SYSTEM=" + system + " exec " + strings.TrimSpace(string(where)) + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	f := newBox(t, srv, workorder.ModeCreate)
	f.start(t)
	f.write(t, "b.big", "new pointer")
	f.write(t, "a.big", "other pointer")
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
		t.Fatalf("saved %+v", s)
	}
	n, _, r := f.next(t)
	if r == nil || !r.Verified || n.sh(t, "cat a.big b.big z") != "other pointernew pointerz" || n.saw(workorder.EventWarning, "") != 2 {
		t.Errorf("restored %+v, events %+v", r, n.seen())
	}
}

// An agent that removes its repository loses what came after the last save, which is said; what was saved counts.
func TestRemovedRepository(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	f.sh(t, "git add a && git commit -qm a")
	f.write(t, "b", "2")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil {
		t.Fatal(s.PushErr)
	}
	head := f.remote(t, workorder.BranchRef(target))
	f.sh(t, "rm -rf ..?* .[!.]* *")
	if err := f.Committer.Commit(t.Context(), says("leftovers")); err == nil {
		t.Error("a commit in a repository that is gone")
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
	if l.Err == nil || l.Head != head || !l.Pushed || l.Checkpoint == nil || len(l.Warnings) != 1 {
		t.Errorf("landed %+v, the remote has %s", l, head)
	}
}

// The next attempt does not miss commits on the branch that an attempt could not push.
func TestUnpushedHeadIsNoneThatWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	f.sh(t, "git add a && git commit -qm a")
	head := f.sh(t, "git rev-parse HEAD")
	if err := f.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError, HeadSHA: head}); err != nil {
		t.Fatal(err)
	}
	f.Heartbeat.Stop()
	n, c, _ := f.next(t)
	if a := c.State.Attempts[0]; a.HeadSHA == head {
		t.Errorf("the state takes %s for pushed", head)
	}
	if n.saw(workorder.EventWarning, "") != 0 {
		t.Errorf("events %+v", n.seen())
	}
}
