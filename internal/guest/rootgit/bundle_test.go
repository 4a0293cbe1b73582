package rootgit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// unpushed is a box whose remote went away before it landed: what it did is in its bundle.
func unpushed(t *testing.T, srv *gittest.Server) *fixture {
	t.Helper()
	f := newBox(t, srv, workorder.ModeCreate)
	f.start(t)
	// A checkpoint that is older than the bundle, and says something else of the same file.
	f.write(t, "a", "early\n")
	gittest.Git(
		t,
		f.Repos.Workspace,
		"branch",
		"aside",
		gittest.Git(t, f.Repos.Workspace, "commit-tree", "-p", "HEAD", "-m", "early", "HEAD^{tree}"),
	)
	k := f.Saver.StartAuto(t.Context(), save.Options{})
	k.Begin()
	eventually(t, "a checkpoint", func() bool { return f.remoteHas(t, workorder.CheckpointRef("T-A1B2C3D4")) })
	srv.Down.Store(true)
	k.Stop(t.Context())
	f.write(t, "a", "late\n")
	gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "aside")
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "--allow-empty", "-m", "aside")
	gittest.Git(t, f.Repos.Workspace, "checkout", "-q", target)
	if err := f.Committer.Commit(t.Context(), says("left")); err != nil {
		t.Fatal(err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusError))
	if l.Err == nil || l.Bundle == "" {
		t.Fatalf("landed %+v", l)
	}
	srv.Down.Store(false)
	return f
}

func (f *fixture) remoteHas(t *testing.T, ref string) bool {
	t.Helper()
	return gittest.Git(t, f.srv.Root+"/r.git", "for-each-ref", "--format=x", ref) != ""
}

func next(t *testing.T, first *fixture) *fixture {
	t.Helper()
	f := newBox(t, first.srv, workorder.ModeContinue)
	f.Repos.Order.Ended, f.Claimer.Bundle = []string{first.Repos.Order.AttemptID}, first.bundle
	return f
}

// The next box begins at commits that never reached the remote, and its first save brings them there.
func TestBundleIsTheStart(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := unpushed(t, srv)
	f := next(t, first)
	c, r := f.start(t)
	if !c.Bundled || r.Kept != "" || gittest.Git(t, f.Repos.Workspace, "show", "HEAD:a") != "late" ||
		gittest.Git(t, f.Repos.Workspace, "status", "--porcelain") != "" {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
	k := f.Saver.StartAuto(t.Context(), save.Options{})
	k.Begin()
	eventually(t, "the branch on the remote", func() bool { return f.remoteHas(t, workorder.BranchRef(target)) })
	k.Stop(t.Context())
	if got := f.remote(t, workorder.BranchRef(target)); got != c.Head {
		t.Errorf("the branch is at %s, want %s", got, c.Head)
	}
	aside := gittest.Git(t, first.Repos.Workspace, "rev-parse", "aside")
	if refs := gittest.Git(
		t,
		srv.Root+"/r.git",
		"for-each-ref",
		"--format=%(objectname)",
		workorder.TaskRefs("T-A1B2C3D4"),
	); !strings.Contains(
		refs,
		aside,
	) {
		t.Error("what was beside the branch is not on the remote")
	}
	if l := f.Lander.Land(
		t.Context(),
		c.BaseSHA,
		f.bundle+"2",
		ended(workorder.StatusSuccess),
	); l.Err != nil || !l.Pushed ||
		l.Checkpoint != nil {
		t.Errorf("landed %+v", l)
	}
	// Given once more, it has nothing new to say.
	again := next(t, first)
	again.Repos.Order.Ended = append(again.Repos.Order.Ended, f.Repos.Order.AttemptID)
	if c, _ := again.start(t); c.Bundled || len(c.Kept) != 0 {
		t.Errorf("claimed %+v", c)
	}
}

// Somebody pushed to the branch meanwhile: their commits stay, ours are kept beside.
func TestBundleThatDoesNotFit(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := unpushed(t, srv)
	bare := srv.Root + "/r.git"
	theirs := gittest.Git(t, bare, "commit-tree", "-p", first.base, "-m", "theirs", "HEAD^{tree}")
	gittest.Git(t, bare, "update-ref", workorder.BranchRef(target), theirs)
	f := next(t, first)
	c, _ := f.start(t)
	if c.Bundled || c.Head != theirs {
		t.Errorf("claimed %+v", c)
	}
	k := f.Saver.StartAuto(t.Context(), save.Options{})
	k.Begin()
	kept := func() string {
		return gittest.Git(t, bare, "for-each-ref", "--format=%(refname)", workorder.KeptRef("T-A1B2C3D4", "bundle-*"))
	}
	eventually(t, "the bundle's commits on the remote", func() bool { return kept() != "" })
	k.Stop(t.Context())
	if got := gittest.Git(t, bare, "show", kept()+":a"); got != "late" {
		t.Errorf("kept %q", got)
	}
	if f.saw(workorder.EventWarning, "") == 0 {
		t.Error("there was no report")
	}
}

func TestBundleThatIsDamaged(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := unpushed(t, srv)
	f := next(t, first)
	f.Claimer.Bundle += ".missing"
	if c, r := f.start(t); c.Bundled || !r.Verified || gittest.Git(t, f.Repos.Workspace, "hash-object", "a") == "" {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
	if f.saw(workorder.EventWarning, "") != 1 {
		t.Errorf("events %+v", f.seen())
	}
}

// A box that vanished before it took the lease leaves nothing; what a user adds
// later outlives the attempt that it was given to.
func TestContinueFromNothingAndAdditions(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	var ended []string
	for i, text := range []string{"do x", "do x", "and y", "", "and y", "and z"} {
		f := newBox(t, srv, workorder.ModeContinue)
		f.Repos.Order.Task, f.Repos.Order.Ended = text, slices.Clone(ended)
		c, r := f.start(t)
		if c.Continues != (i > 0) || (r != nil) != (i > 0) || c.Attempt != i+1 {
			t.Fatalf("attempt %d: %+v, %+v", i+1, c, r)
		}
		ended = append(ended, f.Repos.Order.AttemptID)
		if i == 5 && (c.State.Task != "do x" || strings.Join(c.State.Added, "|") != "and y|and z") {
			t.Errorf("the task is %q, added %q", c.State.Task, c.State.Added)
		}
	}
}

// An attempt's cost is on the remote while it runs, and the events that the host heard
// of a box that vanished counts where that is more.
func TestCostOfAttempts(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	f := newBox(t, srv, workorder.ModeCreate)
	f.Pusher.Usage = func() workorder.Usage { return workorder.Usage{CostUSD: new(0.5)} }
	f.start(t)
	f.write(t, "a", "1")
	k := f.Saver.StartAuto(t.Context(), save.Options{})
	k.Begin()
	eventually(t, "the cost on the remote", func() bool { s := f.state(t); return s.SpentUSD() == 0.5 })
	k.Stop(t.Context())
	for _, known := range []float64{0.2, 0.75} {
		n := newBox(t, srv, workorder.ModeContinue)
		n.Repos.Order.Ended = []string{f.Repos.Order.AttemptID}
		n.Repos.Order.SpentUSDByAttempt = map[string]float64{f.Repos.Order.AttemptID: known}
		c, _ := n.start(t)
		if got, want := c.State.SpentUSD(), max(0.5, known); got != want {
			t.Errorf("the task has cost $%g, want $%g", got, want)
		}
		if err := n.Lander.Release(t.Context(), ended(workorder.StatusError)(nil, "")); err != nil {
			t.Fatal(err)
		}
	}
}

// A bundle of an attempt that is older than the checkpoint does not have the checkpoint's work.
func TestOldBundleDoesNotHideANewerCheckpoint(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := unpushed(t, srv)
	// Another box went on without the bundle, and vanished.
	second := newBox(t, srv, workorder.ModeContinue)
	second.Repos.Order.Ended = []string{first.Repos.Order.AttemptID}
	second.start(t)
	second.write(t, "b", "newer\n")
	if err := os.Remove(filepath.Join(second.Repos.Workspace, "a")); err != nil {
		t.Fatal(err)
	}
	if s := second.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	f := next(t, first)
	f.Repos.Order.Ended = append(f.Repos.Order.Ended, second.Repos.Order.AttemptID)
	c, r := f.start(t)
	if !c.Bundled || f.sh(t, "cat a") != "late\n" {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
	if got := f.sh(t, "cat b"); got != "newer\n" || r.Checkpoint == "" {
		t.Errorf("the checkpoint's work is gone: %q, restored %+v", got, r)
	}
}
