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

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const tenLines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

// endedAs is how a test's attempts end.
func endedAs(status workorder.Status) func([]workorder.Commit, string) workorder.Attempt {
	return func(_ []workorder.Commit, head string) workorder.Attempt {
		return workorder.Attempt{Status: status, HeadSHA: head}
	}
}

// withTask is a remote with a task of two commits, one by somebody else, whose base has moved on.
func withTask(t *testing.T, base map[string]string) (srv *gittest.Server, head string) {
	t.Helper()
	srv = gittest.New(t, token)
	srv.Create(t, "r.git", map[string]string{"f": tenLines, "g": "g\n"})
	f := newBox(t, srv, workorder.ModeCreate)
	f.start(t)
	f.write(t, "f", strings.Replace(tenLines, "2\n", "two\n", 1))
	gittest.Git(t, f.Repos.Workspace, "commit", "-qam", "Change two")
	f.write(t, "new", "new\n")
	gittest.Git(t, f.Repos.Workspace, "add", "new")
	gittest.Git(t, f.Repos.Workspace, "commit", "-qm", "Add new", "--author", "Bea <bea@example.org>")
	if err := f.Committer.Commit(t.Context(), says("rest")); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, endedAs(workorder.StatusSuccess)); l.Err != nil || !l.Pushed {
		t.Fatalf("%+v", l)
	}
	onRemote(t, srv, "main", base, "Base goes on")
	return srv, f.remote(t, workorder.BranchRef(target))
}

// onRemote commits to a branch of the remote as somebody else.
func onRemote(t *testing.T, srv *gittest.Server, branch string, files map[string]string, message string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	gittest.Git(t, t.TempDir(), "clone", "-q", "-b", branch, srv.Root+"/r.git", dir)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, dir, "add", "-A")
	gittest.Git(t, dir, "commit", "-q", "--allow-empty", "-m", message)
	gittest.Git(t, dir, "push", "-q", "origin", "HEAD:"+branch)
	return gittest.Git(t, dir, "rev-parse", "HEAD")
}

// rebaseBox is a box that is about to rebase; the plan may be an error.
func rebaseBox(t *testing.T, srv *gittest.Server, o workorder.Rebase) (*fixture, *claim.Result, *land.RebasePlan, error) {
	t.Helper()
	f := newBox(t, srv, workorder.ModeRebase)
	f.Repos.Order.Rebase = &o
	c, _ := f.start(t)
	plan, err := f.Rebaser.Plan(t.Context(), c)
	return f, c, plan, err
}

// refusedFor reports whether err is a rebase that was not begun, ended so, and names what it is about.
func refusedFor(err error, by workorder.EndedBy, names ...string) bool {
	refused, ok := errors.AsType[*land.RebaseError](err)
	return ok && refused.EndedBy() == by &&
		!slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(err.Error(), name) })
}

const (
	besideRef = "refs/sandbox-agent/T-A1B2C3D4/heads/rebased-2"
	backupRef = "refs/sandbox-agent/T-A1B2C3D4/heads/before-rebase-2"
)

func TestRebaseWithoutConflicts(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		srv, old := withTask(t, map[string]string{"f": strings.Replace(tenLines, "9\n", "nine\n", 1)})
		if apart {
			srv.WithoutAtomic(t, "r.git")
		}
		f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
		if err != nil {
			t.Fatal(err)
		}
		tip := f.remote(t, "refs/heads/main")
		if plan.NewBase != tip || plan.OldHead != old || plan.Commits != 2 || plan.Nothing() != "" {
			t.Fatalf("%+v", plan)
		}
		if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil || plan.Conflict != nil {
			t.Fatalf("%v, %+v", err, plan.Conflict)
		}
		head, why, err := f.Rebaser.Unfinished(t.Context(), plan)
		if err != nil || why != "" || head == old {
			t.Fatalf("%s %q %v", head, why, err)
		}
		c, err := land.CompareCommits(
			t.Context(),
			f.Repos.Outbox(),
			land.Range{Upstream: plan.Upstream, OldHead: old, NewBase: tip, NewHead: head},
		)
		if err != nil || len(c.Problems) > 0 || len(c.Moved) != 2 || c.Moved[1].How != workorder.RangeSame {
			t.Fatalf("%+v, %v", c, err)
		}
		// Saves in the meantime leave the branch alone.
		if s := f.Saver.Save(
			t.Context(),
			true,
		); s.PushErr != nil || f.remote(t, workorder.BranchRef(target)) != old ||
			f.remote(t, besideRef) != head {
			t.Fatalf("%+v", s)
		}
		f.write(t, "dropping", "of a check")
		gittest.Git(t, f.Repos.Workspace, "commit", "-q", "--allow-empty", "-m", "by a check")
		if err := f.Lander.MoveBranch(
			remote.RebaseResult{Branch: "main", Base: tip, Head: "", OldHead: old, Backup: backupRef},
		); err == nil {
			t.Error("the branch may become nothing")
		}
		if err := f.Lander.MoveBranch(
			remote.RebaseResult{Branch: "main", Base: tip, Head: head, OldHead: old, Backup: backupRef},
		); err != nil {
			t.Fatal(err)
		}
		l := f.Lander.Land(t.Context(), tip, f.bundle, endedAs(workorder.StatusSuccess))
		if l.Err != nil || !l.Pushed || l.Head != head || len(l.Commits) != 2 {
			t.Fatalf("%+v", l)
		}
		if f.remote(t, workorder.BranchRef(target)) != head || f.remote(t, backupRef) != old {
			t.Error("the branch was not moved, or its old head not kept")
		}
		if f.remote(t, besideRef) != "" {
			t.Error("what the branch has lies beside it as well")
		}
		if refs := gittest.Git(
			t,
			srv.Root+"/r.git",
			"for-each-ref",
			"--format=%(refname)",
			workorder.TaskRefs("T-A1B2C3D4")+"heads/replaced-*",
		); refs != "" {
			t.Errorf("kept twice: %s", refs)
		}
		if s := f.state(t); s.BaseBranch != "main" || s.BaseSHA != tip || s.Last().HeadSHA != head || s.Lease != nil {
			t.Errorf("state %+v", s)
		}
		who := gittest.Git(t, srv.Root+"/r.git", "log", "--format=%an %cn", head, "^"+tip)
		if who != "Bea Agent\nAnn Agent" {
			t.Errorf("authors and committers: %q", who)
		}
	}
}

// While the branch is held nothing moves it: no save, no landing, no rescue in another process.
func TestHeldBranch(t *testing.T) {
	t.Parallel()
	srv, old := withTask(t, map[string]string{"f": strings.Replace(tenLines, "2\n", "zwei\n", 1)})
	f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		&land.Conflict{Commit: plan.Conflict.Commit, Subject: "Change two", Files: []string{"f"}},
		plan.Conflict,
	); diff != "" {
		t.Fatal(diff)
	}
	if _, why, err := f.Rebaser.Unfinished(t.Context(), plan); err != nil || !strings.HasSuffix(why, " f") {
		t.Errorf("%q %v", why, err)
	}
	f.write(t, "note", "half done\n")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("%+v", s)
	}
	beside := f.remote(t, besideRef)
	if got := gittest.Git(t, srv.Root+"/r.git", "show", beside+":f"); !strings.Contains(got, "<<<<<<<") {
		t.Errorf("the conflict is not kept: %s", got)
	}
	f.write(t, "note", "more\n")
	l := f.rescue(t).Lander.Land(t.Context(), f.base, f.bundle, endedAs(workorder.StatusInterrupted))
	if l.Err != nil || l.Head != old || !l.Pushed || len(l.Commits) != 2 || l.Checkpoint != nil || len(l.Warnings) > 0 {
		t.Errorf("%+v", l)
	}
	if f.remote(t, workorder.BranchRef(target)) != old || f.remote(t, workorder.CheckpointRef("T-A1B2C3D4")) != "" {
		t.Error("the branch was moved, or a checkpoint made")
	}
	if got := gittest.Git(t, srv.Root+"/r.git", "show", f.remote(t, besideRef)+":note"); got != "more" {
		t.Errorf("note: %q", got)
	}
	if s := f.state(t); s.BaseSHA == f.remote(t, "refs/heads/main") || s.Last().HeadSHA != old || s.Lease != nil {
		t.Errorf("%+v", s)
	}
	// The next attempt goes on from where the task was, and nothing of this counts as lost work.
	n := newBox(t, srv, workorder.ModeContinue)
	c, r := n.start(t)
	if c.Head != old || r.Kept != "" || r.Checkpoint != "" {
		t.Errorf("%+v, %+v", c, r)
	}
}

func TestResolvedRebase(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resolve func(t *testing.T, f *fixture)
		why     string   // Unfinished names it
		not     string   // and not this
		how     string   // the first commit of Compare
		problem []string // Compare names these
	}{
		"resolved": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			f.write(t, "f", strings.Replace(tenLines, "2\n", "zwei two\n", 1))
			gittest.Git(t, f.Repos.Workspace, "add", "f")
			gittest.Git(t, f.Repos.Workspace, "-c", "core.editor=true", "rebase", "--continue")
		}, how: workorder.RangeChanged},
		"marks": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "add", "f")
			gittest.Git(t, f.Repos.Workspace, "-c", "core.editor=true", "rebase", "--continue")
		}, how: workorder.RangeChanged, problem: []string{" f "}},
		"skipped": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "rebase", "--skip")
		}, how: workorder.RangeDropped, problem: []string{`"Change two"`, " f "}},
		"author": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			f.write(t, "f", strings.Replace(tenLines, "2\n", "zwei two\n", 1))
			gittest.Git(t, f.Repos.Workspace, "commit", "-qam", "Change two", "--author", "Mallory <m@example.org>")
			gittest.Git(t, f.Repos.Workspace, "-c", "core.editor=true", "rebase", "--continue")
		}, how: workorder.RangeChanged, problem: []string{"Ann <ann@example.org>", "Mallory <m@example.org>"}},
		"aborted": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "rebase", "--abort")
		}, why: target},
		"quit": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "reset", "-q", "--hard")
			gittest.Git(t, f.Repos.Workspace, "rebase", "--quit")
		}, why: target},
		"staged": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "add", "f")
		}, why: "rebase", not: target},
		"not on it": {resolve: func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "rebase", "--abort")
			gittest.Git(t, f.Repos.Workspace, "commit", "-q", "--allow-empty", "-m", "x")
		}, why: " main "},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, old := withTask(t, map[string]string{"f": strings.Replace(tenLines, "2\n", "zwei\n", 1)})
			f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil || plan.Conflict == nil {
				t.Fatal(err)
			}
			tc.resolve(t, f)
			head, why, err := f.Rebaser.Unfinished(t.Context(), plan)
			if err != nil || (tc.why == "") != (why == "") || !strings.Contains(why, tc.why) ||
				tc.not != "" && strings.Contains(why, tc.not) {
				t.Fatalf("%q %v", why, err)
			}
			if why != "" {
				return
			}
			c, err := land.CompareCommits(
				t.Context(),
				f.Repos.Outbox(),
				land.Range{Upstream: plan.Upstream, OldHead: old, NewBase: plan.NewBase, NewHead: head, Resolver: "the agent"},
			)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.Problems, "; ")
			if (len(tc.problem) == 0) != (got == "") || c.Moved[0].How != tc.how {
				t.Errorf("%+v, problems: %s", c.Moved, got)
			}
			for _, names := range tc.problem {
				if !strings.Contains(got, names) {
					t.Errorf("problems without %s: %s", names, got)
				}
			}
			if why := c.Moved[0].Reason; len(tc.problem) == 0 &&
				(!strings.Contains(why, " f,") || !strings.HasSuffix(why, "the agent") || c.Moved[1].How != workorder.RangeSame) {
				t.Errorf("%+v", c.Moved)
			}
		})
	}
}

// Somebody who pushes during the rebase keeps what they pushed.
func TestPushDuringARebase(t *testing.T) {
	t.Parallel()
	srv, old := withTask(t, map[string]string{"g": "other\n"})
	f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil {
		t.Fatal(err)
	}
	theirs := onRemote(t, srv, target, map[string]string{"z": "z"}, "Theirs")
	head, _, err := f.Rebaser.Unfinished(t.Context(), plan)
	if err == nil {
		err = f.Lander.MoveBranch(remote.RebaseResult{Branch: "main", Base: plan.NewBase, Head: head, OldHead: old, Backup: backupRef})
	}
	if err != nil {
		t.Fatal(err)
	}
	l := f.Lander.Land(t.Context(), plan.NewBase, f.bundle, endedAs(workorder.StatusSuccess))
	if git.KindOf(l.Err) != git.KindRejected || l.Pushed {
		t.Fatalf("%+v", l)
	}
	if f.remote(t, workorder.BranchRef(target)) != theirs {
		t.Error("their commit is gone")
	}
	if beside := f.Lander.SideRef(); beside == "" || f.remote(t, beside) != head {
		t.Errorf("the new commits are not kept: %q", beside)
	}
	if err := f.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError, HeadSHA: old}); err != nil {
		t.Fatal(err)
	}
	if s := f.state(t); s.BaseSHA == plan.NewBase || s.Last().HeadSHA != old {
		t.Errorf("%+v", s)
	}
	// Commits that they pushed are not moved unasked.
	if _, _, _, err := rebaseBox(
		t,
		srv,
		workorder.Rebase{},
	); !refusedFor(err, workorder.EndedByGit, `"Theirs"`, "Ann", "--include-others") ||
		strings.Contains(err.Error(), "Change two") {
		t.Errorf("%v", err)
	}
}

func TestRebaseOfForeignCommits(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, map[string]string{"g": "other\n"})
	onRemote(t, srv, target, map[string]string{"z": "z"}, "Theirs \x1b[31m")
	f, _, _, err := rebaseBox(t, srv, workorder.Rebase{})
	if !refusedFor(err, workorder.EndedByGit, "Theirs", " 1 ", "--include-others") || strings.Contains(err.Error(), "\x1b") {
		t.Fatalf("%v", err)
	}
	if err := f.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError}); err != nil {
		t.Fatal(err)
	}
	f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{Foreign: true})
	if err != nil || plan.Commits != 3 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if err := f.Rebaser.Run(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if who := gittest.Git(t, f.Repos.Workspace, "log", "-1", "--format=%an"); who != "Ann" {
		t.Error(who)
	}
}

// A box that vanished said nothing of its last pushes: what its committer made is its, what others made is not.
func TestRebaseAfterALostBox(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, map[string]string{"g": "other\n"})
	f := newBox(t, srv, workorder.ModeContinue)
	f.start(t)
	f.write(t, "late", "late")
	if err := f.Committer.Commit(t.Context(), says("Late")); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, nil); l.Err != nil { // and nothing after it
		t.Fatal(l.Err)
	}
	f.Heartbeat.Stop()
	lost := func(foreign bool) (*land.RebasePlan, error) {
		n := newBox(t, srv, workorder.ModeRebase)
		n.Repos.Order.Rebase, n.Repos.Order.Ended = &workorder.Rebase{Foreign: foreign}, []string{f.Repos.Order.AttemptID}
		c, _ := n.start(t)
		plan, err := n.Rebaser.Plan(t.Context(), c)
		if rerr := n.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError}); rerr != nil {
			t.Fatal(rerr)
		}
		return plan, err
	}
	if plan, err := lost(false); err != nil || plan.Commits != 3 {
		t.Fatalf("%+v, %v", plan, err)
	}
	onRemote(t, srv, target, map[string]string{"z": "z"}, "Theirs")
	if _, err := lost(false); !refusedFor(err, workorder.EndedByGit, " 1 ", `"Theirs"`, "Ann") {
		t.Error(err)
	}
}

func TestRebaseThatIsNotBegun(t *testing.T) {
	t.Parallel()
	t.Run("up to date", func(t *testing.T) {
		t.Parallel()
		srv := gittest.New(t, token)
		srv.Create(t, "r.git", nil)
		f := newBox(t, srv, workorder.ModeCreate)
		f.start(t)
		f.write(t, "a", "a")
		if err := f.Committer.Commit(t.Context(), says("a")); err != nil {
			t.Fatal(err)
		}
		f.Lander.Land(t.Context(), f.base, f.bundle, endedAs(workorder.StatusSuccess))
		_, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
		if err != nil || plan.Commits == 0 || !strings.Contains(plan.Nothing(), " main ") ||
			!strings.Contains(plan.Nothing(), plan.NewBase[:12]) {
			t.Errorf("%+v, %v", plan, err)
		}
	})
	t.Run("no such branch", func(t *testing.T) {
		t.Parallel()
		srv, _ := withTask(t, nil)
		if _, _, _, err := rebaseBox(t, srv, workorder.Rebase{Onto: "nowhere"}); !refusedFor(err, workorder.EndedByGit, `"nowhere"`, "--onto") {
			t.Error(err)
		}
	})
	t.Run("uncommitted work", func(t *testing.T) {
		t.Parallel()
		srv, _ := withTask(t, nil)
		f := newBox(t, srv, workorder.ModeContinue)
		f.start(t)
		f.write(t, "half", "done")
		k := f.Saver.StartAuto(t.Context(), save.Options{Checkpoint: time.Hour})
		k.Begin()
		eventually(t, "a checkpoint", func() bool { return f.remote(t, workorder.CheckpointRef("T-A1B2C3D4")) != "" })
		k.Stop(t.Context())
		f.Heartbeat.Stop()
		n := newBox(t, srv, workorder.ModeRebase)
		n.Repos.Order.Rebase, n.Repos.Order.Ended = &workorder.Rebase{}, []string{f.Repos.Order.AttemptID}
		c, _ := n.start(t)
		if _, err := n.Rebaser.Plan(t.Context(), c); !refusedFor(err, workorder.EndedByOrder, "sandbox-agent continue T-A1B2C3D4") {
			t.Error(err)
		}
		if n.remote(t, workorder.CheckpointRef("T-A1B2C3D4")) == "" {
			t.Error("the checkpoint is gone")
		}
	})
}

// The new head is looked at while the keeper pushes it: -race sees who takes no turns. One that hangs is not
// waited for longer than allowed.
func TestUnfinishedBesideTheKeeper(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, map[string]string{"g": "other\n"})
	f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil {
		t.Fatal(err)
	}
	k := f.Saver.StartAuto(t.Context(), save.Options{Push: 50 * time.Millisecond, CommitsOnly: true})
	k.Begin()
	k.Flush()
	eventually(t, "the moved commits beside the branch", func() bool {
		if _, why, err := f.Rebaser.Unfinished(t.Context(), plan); err != nil || why != "" {
			t.Errorf("%q, %v", why, err)
			return true
		}
		return f.remote(t, besideRef) != ""
	})
	f.srv.Hold.Store(true)
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "--allow-empty", "-m", "more")
	eventually(t, "a push that hangs", func() bool { return f.srv.Held.Load() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := f.Rebaser.Unfinished(ctx, plan); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	k.Stop(ctx)
	f.srv.Hold.Store(false)
}

// A branch that took its base over by a merge, onto another branch: only the task's own commits move.
func TestRebaseOfMerges(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, map[string]string{"g": "other\n"})
	f := newBox(t, srv, workorder.ModeContinue)
	f.start(t)
	gittest.Git(t, f.Repos.Workspace, "merge", "-q", "--no-edit", f.remote(t, "refs/heads/main"))
	f.write(t, "late", "late")
	if err := f.Committer.Commit(t.Context(), says("Late")); err != nil {
		t.Fatal(err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, endedAs(workorder.StatusSuccess))
	gittest.Git(t, srv.Root+"/r.git", "branch", "release", "main~1")
	onRemote(t, srv, "release", map[string]string{"r": "r"}, "Release")
	n, _, plan, err := rebaseBox(t, srv, workorder.Rebase{Onto: "release"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Rebaser.Run(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	head, why, err := n.Rebaser.Unfinished(t.Context(), plan)
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	if got := gittest.Git(t, n.Repos.Workspace, "log", "--format=%s", head, "^"+plan.NewBase); got != "Late\nAdd new\nChange two" {
		t.Errorf("%q", got)
	}
	c, err := land.CompareCommits(
		t.Context(),
		n.Repos.Outbox(),
		land.Range{Upstream: plan.Upstream, OldHead: l.Head, NewBase: plan.NewBase, NewHead: head},
	)
	if err != nil || len(c.Problems) > 0 || len(c.Moved) != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}
