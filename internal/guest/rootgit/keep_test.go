package rootgit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (f *fixture) commit(t *testing.T, name string) string {
	t.Helper()
	f.write(t, name, name)
	gittest.Git(t, f.Repos.Workspace, "add", "-A")
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", name)
	return gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
}

func (f *fixture) branchIs(t *testing.T, sha string) {
	t.Helper()
	eventually(t, "the branch is "+sha, func() bool { return f.remote(t, workorder.BranchRef(target)) == sha })
}

// keep starts saving; the test's end stops it.
func (f *fixture) keep(t *testing.T) *save.AutoSaver {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	k := f.Saver.StartAuto(ctx, save.Options{})
	t.Cleanup(func() { k.Stop(ctx); cancel() })
	k.Begin()
	return k
}

func TestCommitsAndFilesReachTheRemoteWhileTheAgentWorks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	k := f.keep(t)
	f.write(t, "a", "1")
	ref := workorder.CheckpointRef("T-A1B2C3D4")
	eventually(t, "a checkpoint with a", func() bool {
		sha := f.remote(t, ref)
		return sha != "" && gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "--name-only", sha) == "README\na"
	})
	first := f.commit(t, "b")
	f.branchIs(t, first)
	eventually(t, "nothing uncommitted, no checkpoint", func() bool { return f.remote(t, ref) == "" })
	if k.Changed().IsZero() {
		t.Error("no change was seen")
	}
	alive := f.remote(t, workorder.AliveRef("T-A1B2C3D4"))
	eventually(t, "a sign of life", func() bool { return f.remote(t, workorder.AliveRef("T-A1B2C3D4")) != alive })
	k.Stop(t.Context())
	k.Stop(t.Context())
	if f.saw(workorder.EventPush, "error")+f.saw(workorder.EventCheckpoint, "error") != 0 {
		t.Errorf("events %+v", f.seen())
	}
}

// Commits beside the agent's branch are saved as well.
func TestSideBranchesAndStashReachTheRemote(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	k := f.keep(t)
	// Without a checkout: the keeper may look at any moment, and HEAD is the task's branch to it.
	f.sh(
		t,
		"git tag mark $(git commit-tree HEAD^{tree} -p HEAD -m one); git branch side $(git commit-tree HEAD^{tree} -p mark -m two); "+
			"echo s >>README; git stash -q",
	)
	side := gittest.Git(t, f.Repos.Workspace, "rev-parse", "side")
	for name, sha := range map[string]string{
		"side": side, "tags/mark": gittest.Git(t, f.Repos.Workspace, "rev-parse", "mark"), "stash": gittest.Git(t, f.Repos.Workspace,
			"rev-parse", "refs/stash"),
	} {
		ref := workorder.KeptRef("T-A1B2C3D4", name)
		eventually(t, ref, func() bool { return f.remote(t, ref) == sha })
	}
	f.sh(t, "git branch -D side")
	k.Stop(t.Context())
	if got := f.remote(t, workorder.BranchRef(target)); got != "" {
		t.Errorf("the task's branch has no commit, and is pushed at %s", got)
	}
	f.write(t, "a", "1")
	if l := f.land(t); l.Err != nil || !l.Pushed {
		t.Errorf("landed %+v", l)
	}
	if got := f.remote(t, workorder.KeptRef("T-A1B2C3D4", "side")); got != side {
		t.Errorf("the branch that the agent removed is kept at %q, want %s", got, side)
	}
}

// Names of the agent's branches and what is kept of them never stand in each
// other's way, nor in that of the task's branch; and what is kept is not replaced by
// another attempt's work of the same name.
func TestSideBranchesOfSeveralAttempts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200) + "/" + strings.Repeat("y", 30)
	work := "git checkout -q -b %s; date +%%N >one; git add one; git commit -qm one; git checkout -q -; date +%%N >>README; " +
		"git stash -q; git branch " + long + " stash@{0}"
	f := newFixture(t, nil)
	f.sh(t, fmt.Sprintf(work, "side"))
	side, stash := gittest.Git(t, f.Repos.Workspace, "rev-parse", "side"), gittest.Git(t, f.Repos.Workspace, "rev-parse", "refs/stash")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	f.sh(t, "git branch -m side side/way; echo 2 >two; git add two; git commit -qm two")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil || f.remote(t, workorder.BranchRef(target)) != s.Head {
		t.Fatalf("saved %+v", s)
	}
	n, _, _ := f.next(t)
	n.sh(t, fmt.Sprintf(work, "side"))
	if s := n.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	n.write(t, "a", "1")
	if l := n.land(t); l.Err != nil || !l.Pushed {
		t.Fatalf("landed %+v", l)
	}
	// Both attempts' are named to the next one, and what got onto the branch is not.
	n.Repos.Order.Ended = append(n.Repos.Order.Ended, f.Repos.Order.AttemptID)
	n.sh(t, "git branch taken")
	third, _, _ := n.next(t)
	elsewhere, err := third.Checkpoints.SideRefs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, ref := range elsewhere {
		named[f.remote(t, ref)] = ref
	}
	if tip := f.remote(t, workorder.BranchRef(target)); named[tip] != "" || named[""] != "" {
		t.Errorf("what is not elsewhere is named: %q", elsewhere)
	}
	all := gittest.Git(t, f.srv.Root+"/r.git", "for-each-ref", "--format=%(objectname)", workorder.TaskRefs("T-A1B2C3D4"))
	for what, sha := range map[string]string{
		"first side branch": side, "first stash": stash, "second side branch": gittest.Git(t, n.Repos.Workspace, "rev-parse", "side"),
		"second stash": gittest.Git(t, n.Repos.Workspace, "rev-parse", "refs/stash"),
	} {
		if named[sha] == "" {
			t.Errorf("the next attempt is not told of the %s: %q", what, elsewhere)
		}
		if !strings.Contains(all, sha) {
			t.Errorf("the %s is gone", what)
		}
	}
}

// A commit does not wait for the interval.
func TestCommitIsPushedSoon(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(3600)
	k := f.keep(t)
	f.branchIs(t, f.commit(t, "a"))
	f.Heartbeat.Stop() // its pushes are not to be counted
	n := f.srv.Receives.Load()
	f.write(t, "b", "uncommitted")
	k.Flush()
	eventually(t, "a checkpoint with b", func() bool {
		cp := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
		return cp != "" && gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "--name-only", cp, "b") == "b"
	})
	k.Stop(t.Context())
	if got := f.srv.Receives.Load() - n; got != 1 {
		t.Errorf("%d pushes, want 1", got)
	}
}

func TestRewrittenHistory(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"amend":  {"commit", "-q", "--amend", "-m", "other"},
		"rebase": {"-c", "user.name=Other", "-c", "user.email=o@example.org", "rebase", "-q", "--force-rebase", "main"},
		"reset":  {"reset", "-q", "--hard", "main"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil).quick(0.3)
			f.keep(t)
			f.commit(t, "a")
			was := f.commit(t, "b")
			f.branchIs(t, was)
			if name == "rebase" { // else the same commits on the same base are the same commits
				base := gittest.Git(t, f.Repos.Workspace, "commit-tree", "-p", "main", "-m", "base", "main^{tree}")
				gittest.Git(t, f.Repos.Workspace, "update-ref", "refs/heads/main", base)
			}
			gittest.Git(t, f.Repos.Workspace, args...)
			now := gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
			if now == was {
				t.Fatal("nothing was rewritten")
			}
			f.branchIs(t, now)
			eventually(t, "the replaced commits on a ref of their own", func() bool { // one push moves several refs, one after another
				return f.remote(t, workorder.KeptRef("T-A1B2C3D4", "replaced-"+was[:12])) == was
			})
		})
	}
}

// In the middle of a rebase HEAD is on no branch; the branch stays as it is.
func TestRebaseUnderWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.keep(t)
	f.commit(t, "a")
	head := f.commit(t, "b")
	f.branchIs(t, head)
	gittest.Git(t, f.Repos.Workspace, "-c", "sequence.editor=sed -i '1s/^pick/edit/'", "rebase", "-q", "-i", "main")
	f.write(t, "during", "1")
	eventually(t, "a checkpoint of the middle", func() bool {
		sha := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
		return sha != "" && strings.Contains(gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "--name-only", sha), "during")
	})
	if got := f.remote(t, workorder.BranchRef(target)); got != head {
		t.Errorf("the branch became %s", got)
	}
}

func TestSomebodyElsePushesToTheBranch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	k := f.keep(t)
	first := f.commit(t, "a")
	f.branchIs(t, first)
	bare := f.srv.Root + "/r.git"
	other := gittest.Git(t, bare, "commit-tree", "-p", first, "-m", "other", first+"^{tree}")
	gittest.Git(t, bare, "update-ref", workorder.BranchRef(target), other)
	mine := f.commit(t, "b")
	eventually(t, "a checkpoint on top of our commit", func() bool {
		cp := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
		return cp != "" && gittest.Git(t, bare, "rev-parse", cp+"^") == mine
	})
	k.Stop(t.Context())
	l := f.land(t)
	if git.KindOf(l.Err) != git.KindRejected || l.Bundle == "" || f.remote(t, workorder.BranchRef(target)) != other {
		t.Errorf("landed %+v", l)
	}
	if got := f.remote(t, workorder.KeptRef("T-A1B2C3D4", target)); got != mine {
		t.Errorf("our commits are kept as %q, want %s", got, mine)
	}
	if f.saw(workorder.EventPush, "error") == 0 || l.Checkpoint == nil {
		t.Errorf("landed %+v, events %+v", l, f.seen())
	}
}

func TestRemoteGoesAndComesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.keep(t)
	f.srv.Down.Store(true)
	sha := f.commit(t, "a")
	eventually(t, "an error", func() bool { return f.saw(workorder.EventPush, "error") > 0 })
	f.srv.Down.Store(false)
	f.branchIs(t, sha)
	eventually(t, "the news that it is back", func() bool {
		return slices.ContainsFunc(f.seen(), func(e workorder.Event) bool {
			return e.Type == workorder.EventPush && e.Status == "ok" && e.Name == workorder.StateRef("T-A1B2C3D4") && !git.ValidSHA(e.Text)
		})
	})
	if n := f.saw(workorder.EventPush, "error"); n != 1 {
		t.Errorf("the same failure was said %d times", n)
	}
}

func TestRemoteThatRefusesTheBranch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.srv.Refuse(t, "r.git", workorder.BranchRef(target))
	k := f.keep(t)
	mine := f.commit(t, "a")
	eventually(t, "the commit as a checkpoint's parent", func() bool {
		cp := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
		return cp != "" && gittest.Git(t, f.srv.Root+"/r.git", "rev-parse", cp+"^") == mine
	})
	alive := f.remote(t, workorder.AliveRef("T-A1B2C3D4"))
	eventually(t, "a sign of life", func() bool { return f.remote(t, workorder.AliveRef("T-A1B2C3D4")) != alive })
	k.Stop(t.Context())
	if l := f.land(t); l.Err == nil || l.Pushed || l.Bundle == "" || f.remote(t, workorder.KeptRef("T-A1B2C3D4", target)) != mine {
		t.Errorf("landed %+v", l)
	}
	f.srv.Refuse(t, "r.git", "")
	if l := f.land(t); l.Err != nil || !l.Pushed || l.Checkpoint != nil || f.remote(t, workorder.CheckpointRef("T-A1B2C3D4")) != "" {
		t.Errorf("landed %+v", l)
	}
}

func TestRemoteWithoutAtomicPushes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.srv.WithoutAtomic(t, "r.git")
	k := f.keep(t)
	first := f.commit(t, "a")
	f.write(t, "b", "2")
	f.branchIs(t, first)
	eventually(t, "a checkpoint", func() bool { return f.remoteHas(t, workorder.CheckpointRef("T-A1B2C3D4")) })
	k.Stop(t.Context())
	if l := f.land(t); l.Err != nil || !l.Pushed || len(l.Commits) != 2 || l.Checkpoint != nil {
		t.Errorf("landed %+v", l)
	}
}

// A push that was cut off may have succeeded: the next box checks.
func TestPushOfUnknownEnd(t *testing.T) {
	t.Parallel()
	for name, through := range map[string]bool{"it came through": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.write(t, "a", "1")
			if s := f.Saver.Save(t.Context(), true); !s.Pushed {
				t.Fatalf("saved %+v", s)
			}
			head := f.commit(t, "b")
			file := filepath.Join(f.Repos.Dir, "ledger.json")
			before := map[string]any{}
			if b, err := os.ReadFile(file); err != nil || json.Unmarshal(b, &before) != nil {
				t.Fatalf("read %s: %v", file, err)
			}
			before["pending"] = &remote.PushTarget{State: f.Ledger.State, Refs: map[string]string{
				workorder.StateRef("T-A1B2C3D4"): head, workorder.BranchRef(target): head, // never sent
			}}
			if through {
				if s := f.Saver.Save(t.Context(), true); !s.Pushed {
					t.Fatalf("saved %+v", s)
				}
				before["pending"] = &remote.PushTarget{State: f.Ledger.State, Refs: maps.Clone(f.Ledger.Refs)}
				before["tips"] = f.Ledger.Tips
			}
			f.Heartbeat.Stop()
			// Rescue reads what a boot that was killed in the push has left.
			left, err := json.Marshal(before)
			if err == nil {
				err = os.WriteFile(file, left, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			f = f.rescue(t)
			f.write(t, "c", "3")
			if l := f.land(t); l.Err != nil || !l.Pushed || f.remote(t, workorder.BranchRef(target)) != l.Head || len(l.Commits) != 2 {
				t.Errorf("landed %+v", l)
			}
		})
	}
}

// After the agent's end only commits are saved: the work tree is validation's.
func TestCommitsOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.write(t, "a", "1")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil {
		t.Fatal(s.PushErr)
	}
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	k := f.Saver.StartAuto(t.Context(), save.Options{CommitsOnly: true})
	k.Begin()
	f.write(t, "dropping", "x")
	f.branchIs(t, gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD"))
	alive := f.remote(t, workorder.AliveRef("T-A1B2C3D4"))
	eventually(t, "a sign of life", func() bool { return f.remote(t, workorder.AliveRef("T-A1B2C3D4")) != alive })
	k.Stop(t.Context())
	if got := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4")); got != "" {
		t.Errorf("there is a checkpoint %s", got)
	}
}

// Stop kills a push that hangs when its time is over.
func TestStopOfAHangingSave(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.2)
	f.srv.Hold.Store(true)
	k := f.keep(t)
	f.write(t, "a", "1")
	eventually(t, "a push that hangs", func() bool { return f.srv.Held.Load() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	k.Stop(ctx)
	f.srv.Hold.Store(false)
	if l := f.land(t); l.Err != nil || !l.Pushed {
		t.Errorf("landed %+v", l)
	}
	if _, err := os.Stat(filepath.Join(f.Repos.Workspace, ".git/index.lock")); err == nil {
		t.Error("a lock was left")
	}
}
