package rootgit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// hook makes the remote run a script for each ref that is pushed, its name in $1.
func (f *fixture) hook(t *testing.T, script string) {
	t.Helper()
	dir := filepath.Join(f.srv.Root, "r.git/hooks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "update"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// kept are the commits that the remote has beside the branch.
func (f *fixture) kept(t *testing.T) string {
	t.Helper()
	return gittest.Git(t, f.srv.Root+"/r.git", "for-each-ref", "--format=%(objectname) %(refname)", workorder.KeptRef("T-A1B2C3D4", ""))
}

// Whatever the agent calls its branches, each has a ref of its own, and none that means something else.
func TestNamesOfTheAgentsOwnDoNotCollide(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var want []string
	for i, ref := range []string{
		"refs/heads/x/y", "refs/heads/x=2Fy", "refs/heads/stash", "refs/heads/HEAD", "refs/heads/tags/v1", "refs/tags/v1",
		"refs/heads/branch/stash",
		"refs/heads/replaced-000000000000", "refs/heads/bundle-000000000000", "refs/heads/checkpoint-000000000000",
		"refs/heads/before-rebase-2", "refs/heads/rebased-2",
	} {
		sha := gittest.Git(t, f.Repos.Workspace, "commit-tree", "-p", "HEAD", "-m", fmt.Sprint(i), "HEAD^{tree}")
		gittest.Git(t, f.Repos.Workspace, "update-ref", ref, sha)
		want = append(want, sha)
	}
	f.sh(t, "echo 1 >>README; git stash -q; echo 2 >>README; git stash -q")
	want = append(want, strings.Fields(f.sh(t, "git rev-parse stash@{0} stash@{1}"))...)
	f.write(t, "a", "1")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	l := f.land(t)
	if l.Err != nil || !l.Pushed || l.Bundle != "" {
		t.Errorf("landed %+v", l)
	}
	for i, sha := range want {
		if !strings.Contains(f.kept(t), sha) {
			t.Errorf("commit %d is not kept:\n%s", i, f.kept(t))
		}
	}
	for _, ours := range []string{"before-rebase-2", "rebased-2"} {
		if f.remote(t, workorder.KeptRef("T-A1B2C3D4", ours)) != "" {
			t.Errorf("a branch of the agent's goes by the name of our backup %s", ours)
		}
	}
}

// Commits that the clone brought are not counted as the agent's.
func TestManyTagsOfTheRemote(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	bare := srv.Root + "/r.git"
	for i := range remote.MaxRefs + 10 {
		gittest.Git(
			t,
			bare,
			"update-ref",
			fmt.Sprintf("refs/tags/a%d", i),
			gittest.Git(t, bare, "commit-tree", "-m", fmt.Sprint(i), "main^{tree}"),
		)
	}
	f := newBox(t, srv, workorder.ModeCreate)
	f.start(t)
	f.sh(t, "git checkout -q -b z; echo z >z; git add z; git commit -qm z; git checkout -q -")
	z := gittest.Git(t, f.Repos.Workspace, "rev-parse", "z")
	f.write(t, "a", "1")
	if l := f.land(t); l.Err != nil || !strings.Contains(f.kept(t), z) {
		t.Errorf("landed %+v, kept %q", l, f.kept(t))
	}
}

// Other branches of the agent that the remote does not take keep nothing else
// back, goes into the bundle, and is only then called kept.
func TestBesideThatTheRemoteDoesNotTake(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*testing.T, *fixture){
		"refused": func(t *testing.T, f *fixture) {
			t.Helper()
			f.hook(t, `case "$1" in refs/sandbox-agent/*/heads/*side) exit 1;; esac`)
		},
		"no place for it": func(t *testing.T, f *fixture) {
			t.Helper()
			gittest.Git(t, f.srv.Root+"/r.git", "update-ref", workorder.KeptRef("T-A1B2C3D4", "side")+"/in/the/way", "main")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			spoil(t, f)
			f.sh(
				t,
				"for b in side other; do git checkout -q -b $b; echo $b >$b; git add $b; git commit -qm $b; git checkout -q "+target+"; done",
			)
			side, other := gittest.Git(t, f.Repos.Workspace, "rev-parse", "side"), gittest.Git(t, f.Repos.Workspace, "rev-parse", "other")
			head := f.commit(t, "a")
			f.write(t, "u", "uncommitted")
			f.Saver.Save(t.Context(), true)
			if f.remote(t, workorder.BranchRef(target)) != head || f.Ledger.Checkpoint == nil || !strings.Contains(f.kept(t), other) {
				t.Errorf("the rest was kept back: %q", f.kept(t))
			}
			if err := f.Committer.Commit(t.Context(), says("left")); err != nil {
				t.Fatal(err)
			}
			l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusSuccess))
			if l.Err != nil || !l.Pushed || l.Bundle != f.bundle || f.state(t).Last().Status != workorder.StatusSuccess {
				t.Fatalf("landed %+v", l)
			}
			if got := gittest.Git(t, f.Repos.Workspace, "bundle", "list-heads", l.Bundle); !strings.Contains(got, side) {
				t.Errorf("the bundle has %q", got)
			}
			if !slices.ContainsFunc(l.Warnings, func(w string) bool {
				return strings.Contains(w, " side,") && strings.Contains(w, target) && !strings.Contains(w, "refs/")
			}) {
				t.Errorf("warnings %q", l.Warnings)
			}
		})
	}
}

// A refusal while the agent works may be a bad moment of a hook: it is tried again.
func TestRefusalIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	f.srv.Refuse(t, "r.git", workorder.BranchRef(target))
	f.keep(t)
	f.write(t, "u", "uncommitted")
	sha := f.commit(t, "a")
	eventually(t, "a refusal is said", func() bool { return f.saw(workorder.EventPush, "error") > 0 })
	f.srv.Refuse(t, "r.git", "")
	f.branchIs(t, sha)
	eventually(t, "the checkpoint goes", func() bool { return !f.remoteHas(t, workorder.CheckpointRef("T-A1B2C3D4")) })
}

// Where several refs cannot change at once, the end of an attempt goes last.
func TestEndGoesLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.srv.WithoutAtomic(t, "r.git")
	f.srv.Refuse(t, "r.git", workorder.BranchRef(target))
	f.write(t, "a", "1")
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	f.Ledger.Apart = true
	if err := f.Pusher.Push(
		t.Context(),
		[]remote.Change{{Ref: workorder.BranchRef(target), SHA: gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")}},
		nil,
		func(s *workorder.State) { s.Lease, s.Last().Status = nil, workorder.StatusSuccess },
	); err == nil {
		t.Error("the remote refused nothing")
	}
	if s := f.state(t); s.Lease == nil || s.Last().Status != "" {
		t.Errorf("the attempt ended without its work: %+v", s.Last())
	}
	f.srv.Refuse(t, "r.git", "")
	if l := f.Lander.Land(
		t.Context(),
		f.base,
		f.bundle,
		ended(workorder.StatusSuccess),
	); l.Err != nil || !l.Pushed ||
		f.state(t).Lease != nil {
		t.Errorf("landed %+v", l)
	}
}

// A rule of the remote about the branch refuses a whole push. What it does not touch arrives all the same,
// and the remote's own words are known.
func TestRuleAboutTheBranch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	hook := filepath.Join(f.srv.Root, "r.git/hooks/pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nwhile read o n r; do case $r in refs/heads/agent/*) "+
		`printf 'error: GH001: \033[31mfile big exceeds the limit\033[0m\n\nsee https://u:s3cret@example.com/rules\n' >&2; exit 1;; esac; done`+
		"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.sh(t, "git checkout -q -b side; echo side >side; git add side; git commit -qm side; git checkout -q "+target)
	side, head := gittest.Git(t, f.Repos.Workspace, "rev-parse", "side"), f.commit(t, "a")
	f.write(t, "u", "uncommitted")
	if s := f.Saver.Save(
		t.Context(),
		true,
	); s.PushErr == nil || f.Ledger.Checkpoint == nil || f.remote(t, workorder.CheckpointRef("T-A1B2C3D4")) == "" ||
		!strings.Contains(f.kept(t), side) {
		t.Errorf("saved %+v; the remote keeps %q", s, f.kept(t))
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusSuccess))
	if l.Err == nil || l.Pushed || !strings.Contains(f.kept(t), head) || l.Bundle == "" {
		t.Fatalf("landed %+v; the remote keeps %q", l, f.kept(t))
	}
	if said := l.Err.Error(); !strings.Contains(said, "GH001: ") || !strings.Contains(said, "exceeds the limit") ||
		strings.ContainsAny(said, "\x1b\n") ||
		strings.Contains(said, "s3cret") {
		t.Errorf("%q", said)
	}
	if s := f.state(t); s.Lease == nil {
		t.Errorf("the attempt is over, and its branch did not arrive: %+v", s)
	}
}
