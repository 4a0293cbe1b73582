package rootgit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestLandPushesCommitsAndLeftovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	gittest.Git(t, f.Repos.Workspace, "add", "a")
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", "by the agent")
	f.write(t, "b c\n\"ü", "2")
	l := f.land(t)
	if l.Err != nil || !l.Pushed || len(l.Commits) != 2 || l.Commits[0].Subject != "leftovers" || l.Commits[0].Author != "Agent" {
		t.Fatalf("got %+v", l)
	}
	if got := f.remote(t, "refs/heads/"+target); got != l.Head {
		t.Errorf("the remote has %s, want %s", got, l.Head)
	}
	if got := f.remote(t, "refs/heads/main"); got != f.base {
		t.Errorf("the base branch moved to %s", got)
	}
	again := f.land(t)
	if again.Err != nil || again.Head != l.Head {
		t.Errorf("second landing: %+v", again)
	}
}

func TestNothingToLand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	l := f.land(t)
	if l.Err != nil || l.Pushed || l.Head != f.base || len(l.Commits) != 0 {
		t.Errorf("got %+v", l)
	}
	if got := f.remote(t, "refs/heads/"+target); got != "" {
		t.Errorf("an empty branch was pushed: %s", got)
	}
}

// Programs that the work tree's own configuration names must not run, and the credential must not lie in it.
func TestHostileWorkTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	marker := filepath.Join(t.TempDir(), "ran")
	evil := "#!/bin/sh\ntouch " + marker + "\n"
	hooks := filepath.Join(f.Repos.Workspace, ".git/hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"pre-commit", "post-commit", "pre-push", "reference-transaction", "commit-msg"} {
		if err := os.WriteFile(filepath.Join(hooks, h), []byte(evil), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(hooks, "evil")
	if err := os.WriteFile(script, []byte(evil), 0o755); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, f.Repos.Workspace, "config", "core.fsmonitor", script)
	gittest.Git(t, f.Repos.Workspace, "config", "remote.origin.url", "ext::"+script)
	gittest.Git(t, f.Repos.Workspace, "config", "core.sshCommand", script)
	gittest.Git(t, f.Repos.Workspace, "config", "credential.helper", "!"+script)
	gittest.Git(t, f.Repos.Workspace, "config", "url."+f.srv.URL+"/other.git.insteadOf", f.Repos.Order.CloneURL)
	f.write(t, "a", "1")
	if l := f.land(t); l.Err != nil || !l.Pushed {
		t.Fatalf("got %+v", l)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program named by the work tree ran")
	}
	for _, dir := range []string{f.Repos.Workspace, f.Repos.Dir} {
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			if strings.Contains(string(b), token) {
				t.Errorf("the token lies in %s", p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A git that is killed with the agent leaves the locks it held.
func TestLeftLocksDoNotKeepTheWork(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	for _, lock := range []string{"index.lock", "HEAD.lock", "config.lock", "refs/heads/" + target + ".lock"} {
		if err := os.WriteFile(filepath.Join(f.Repos.Workspace, ".git", lock), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l := f.land(t); l.Err != nil || !l.Pushed || len(l.Commits) != 1 {
		t.Fatalf("got %+v", l)
	}
}

func TestAgentThatLeavesItsBranch(t *testing.T) {
	t.Parallel()
	commit := func(t *testing.T, f *fixture, name string) string {
		t.Helper()
		f.write(t, name, name)
		gittest.Git(t, f.Repos.Workspace, "add", "-A")
		gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", name)
		return gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
	}
	for name, tc := range map[string]struct {
		act     func(*testing.T, *fixture) (want string)
		warning string
	}{
		"commits on main": {func(t *testing.T, f *fixture) string {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "main")
			return commit(t, f, "on-main")
		}, ""},
		"returns to main": {func(t *testing.T, f *fixture) string {
			t.Helper()
			sha := commit(t, f, "work")
			gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "main")
			return sha
		}, ""},
		"detached": {func(t *testing.T, f *fixture) string {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "--detach")
			return commit(t, f, "detached")
		}, ""},
		"deletes its branch": {func(t *testing.T, f *fixture) string {
			t.Helper()
			gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "main")
			gittest.Git(t, f.Repos.Workspace, "branch", "-q", "-D", target)
			return commit(t, f, "elsewhere")
		}, target},
		"parts": {func(t *testing.T, f *fixture) string {
			t.Helper()
			sha := commit(t, f, "work")
			gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "main")
			commit(t, f, "other")
			return sha
		}, workorder.KeptRef("T-A1B2C3D4", "HEAD")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			want := tc.act(t, f)
			l := f.land(t)
			if l.Err != nil || l.Head != want || f.remote(t, "refs/heads/"+target) != want {
				t.Errorf("landed %+v, want %s", l, want)
			}
			if f.remote(t, "refs/heads/main") != f.base {
				t.Error("the remote's main moved")
			}
			if has := slices.ContainsFunc(
				l.Warnings,
				func(w string) bool { return strings.Contains(w, tc.warning) },
			); tc.warning != "" &&
				!has {
				t.Errorf("warnings %q, want one with %q", l.Warnings, tc.warning)
			}
		})
	}
}

func TestRemoteDownLeavesABundle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	f.srv.Down.Store(true)
	l := f.land(t)
	if l.Err == nil || l.Pushed || l.Bundle != f.bundle {
		t.Fatalf("got %+v", l)
	}
	clone := t.TempDir()
	gittest.Git(t, clone, "clone", "-q", f.Repos.Mirror().Dir, "c")
	gittest.Git(t, filepath.Join(clone, "c"), "fetch", "-q", f.bundle, "refs/heads/"+target+":refs/heads/kept")
	if got := gittest.Git(t, filepath.Join(clone, "c"), "rev-parse", "kept"); got != l.Head {
		t.Errorf("the bundle has %s, want %s", got, l.Head)
	}
}

func TestForeignBranchIsNotOverwritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	other := gittest.Git(t, f.srv.Root+"/r.git", "commit-tree", "-m", "other", "HEAD^{tree}")
	gittest.Git(t, f.srv.Root+"/r.git", "update-ref", "refs/heads/"+target, other)
	f.write(t, "a", "1")
	l := f.land(t)
	if git.KindOf(l.Err) != git.KindRejected || l.Bundle == "" {
		t.Errorf("got %+v (kind %s)", l, git.KindOf(l.Err))
	}
	if got := f.remote(t, "refs/heads/"+target); got != other {
		t.Errorf("the branch became %s", got)
	}
}

func TestFetchFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*fixture)
		kind   git.Kind
	}{
		"wrong token":    {func(f *fixture) { f.Repos.Auth.Token = "wrong" }, git.KindAuth},
		"no token":       {func(f *fixture) { f.Repos.Auth = nil }, git.KindAuth},
		"missing branch": {func(f *fixture) { f.Repos.Order.Branch = "nope" }, git.KindNotFound},
		"missing repo":   {func(f *fixture) { f.Repos.Order.CloneURL += "x" }, git.KindNotFound},
		"unreachable":    {func(f *fixture) { f.Repos.Order.CloneURL, f.Repos.Auth = "http://127.0.0.1:1/r.git", nil }, git.KindUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.Heartbeat.Stop()
			f.Repos.Dir = t.TempDir()
			tc.change(f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, _, err := f.Claimer.Fetch(ctx); git.KindOf(err) != tc.kind {
				t.Errorf("kind %q (%v), want %q", git.KindOf(err), err, tc.kind)
			} else if strings.Contains(err.Error(), token) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

// A task may begin at a tag, or at a commit that is on no branch of the remote.
func TestBaseOfAnotherKind(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", map[string]string{"f": "1"})
	bare := filepath.Join(srv.Root, "r.git")
	alone := gittest.Git(t, bare, "commit-tree", "-m", "alone", "-p", "main", "main^{tree}")
	gittest.Git(t, bare, "tag", "v1", "main")
	gittest.Git(t, bare, "tag", "main", alone)
	main := gittest.Git(t, bare, "rev-parse", "refs/heads/main")
	for base, want := range map[string]string{"main": main, "v1": main, alone: alone} {
		n := newBox(t, srv, workorder.ModeCreate)
		n.Repos.Order.Branch, n.Repos.BeforeDir = base, filepath.Join(t.TempDir(), "before.git")
		name, sha, err := n.Claimer.Fetch(t.Context())
		if err != nil || name != base || sha != want {
			t.Errorf("%s: fetched %q %q: %v", base, name, sha, err)
			continue
		}
		if err := n.Repos.Before().Run(t.Context(), "cat-file", "-e", want+"^{tree}"); err != nil {
			t.Errorf("%s: the proof does not have it: %v", base, err)
		}
		if err := n.Checkpoints.CheckoutStandalone(t.Context(), name, sha, "x"); err != nil || n.sh(t, "git rev-parse HEAD") != want+"\n" {
			t.Errorf("%s: checked out: %v", base, err)
		}
	}
}

func TestEmptyRemote(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	gittest.Git(t, f.srv.Root, "init", "-q", "--bare", "empty.git")
	f.Heartbeat.Stop()
	f.Repos.Order.CloneURL = f.srv.URL + "/empty.git"
	f.Repos.Dir = t.TempDir()
	if _, _, err := f.Claimer.Fetch(t.Context()); git.KindOf(err) != git.KindNotFound {
		t.Errorf("got %v", err)
	}
}

// One path that git cannot add must not cost the rest.
func TestWhatCannotBeAddedDoesNotKeepTheRestBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	f.sh(t, "mkdir git~1; printf precious >git~1/file") // a name that git takes for .git
	err := f.Committer.Commit(t.Context(), says("leftovers"))
	var left *tree.UncommittedError
	if !errors.As(err, &left) || !slices.Equal(left.Paths, []string{"git~1/file"}) || left.Reason == "" {
		t.Fatalf("got %v, want git~1/file to be named", err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
	if l.Err != nil || !l.Pushed || gittest.Git(t, f.srv.Root+"/r.git", "show", l.Head+":a") != "1" {
		t.Errorf("landed %+v", l)
	}
	archive := filepath.Join(t.TempDir(), "left.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, false); err != nil {
		t.Fatal(err)
	}
	if got := untar(t, archive, "git~1/file"); got != "precious" {
		t.Errorf("the archive has %q", got)
	}
}

func TestRemovedRepositoryIsArchived(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "precious")
	if err := os.RemoveAll(filepath.Join(f.Repos.Workspace, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := f.Committer.Commit(t.Context(), says("leftovers")); err == nil {
		t.Error("committed without a repository")
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, nil); l.Err == nil {
		t.Errorf("landed %+v", l)
	}
	archive := filepath.Join(t.TempDir(), "left.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, false); err != nil {
		t.Fatal(err)
	}
	if got := untar(t, archive, "./a"); got != "precious" {
		t.Errorf("the archive has %q", got)
	}
}

func untar(t *testing.T, archive, name string) string {
	t.Helper()
	out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"tar", "-xzOf", archive, name}})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestBranchesOfTheAgentsOwn(t *testing.T) {
	t.Parallel()
	commit := func(t *testing.T, f *fixture, branch, name string) string {
		t.Helper()
		gittest.Git(t, f.Repos.Workspace, "checkout", "-q", "-B", branch)
		f.write(t, name, name)
		gittest.Git(t, f.Repos.Workspace, "add", "-A")
		gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", name)
		sha := gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
		gittest.Git(t, f.Repos.Workspace, "checkout", "-q", target)
		return sha
	}
	t.Run("the only work", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, nil)
		want := commit(t, f, "feature/x", "a")
		l := f.land(t)
		if l.Err != nil || l.Head != want || f.remote(t, workorder.BranchRef(target)) != want || len(l.Warnings) != 1 {
			t.Errorf("landed %+v, want %s with one warning", l, want)
		}
	})
	t.Run("beside the task's branch", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, nil)
		other := commit(t, f, "feature/x", "a")
		f.write(t, "b", "b")
		l := f.land(t)
		if l.Err != nil || len(l.Commits) != 1 || len(l.Warnings) != 1 {
			t.Errorf("landed %+v", l)
		}
		if got := f.remote(t, workorder.KeptRef("T-A1B2C3D4", "feature/x")); got != other {
			t.Errorf("the other branch is kept as %q, want %s", got, other)
		}
	})
}

func TestBranchBehindTheBase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	gittest.Git(
		t,
		f.srv.Root+"/r.git",
		"update-ref",
		"refs/heads/main",
		gittest.Git(t, f.srv.Root+"/r.git", "commit-tree", "-p", "HEAD", "-m", "second", "HEAD^{tree}"),
	)
	f = newBox(t, f.srv, workorder.ModeCreate)
	f.Repos.Order.TaskID, f.Repos.Order.TargetBranch = "T-00000000", "agent/T-00000000"
	f.start(t)
	sha := f.base
	gittest.Git(t, f.Repos.Workspace, "reset", "-q", "--hard", "HEAD~1")
	if l := f.land(t); l.Err != nil || l.Pushed || l.Head != sha || f.remote(t, workorder.BranchRef(f.Repos.Order.TargetBranch)) != "" {
		t.Errorf("landed %+v", l)
	}
}

// A remote that accepts and never answers costs the push, not the commits.
func TestHangingRemoteLeavesABundle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	// The landing's time is over once the remote has been asked: then there is as much as usual for what is local.
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.RawQuery, "git-receive-pack") {
			cancel(context.DeadlineExceeded)
		}
		<-r.Context().Done()
	}))
	defer hang.Close()
	f.Heartbeat.Stop()
	defer f.Heartbeat.Stop()
	f.Repos.Order.CloneURL = hang.URL
	l := f.Lander.Land(ctx, f.base, f.bundle, nil)
	if l.Err == nil || l.Bundle == "" || len(l.Commits) != 1 {
		t.Fatalf("landed %+v", l)
	}
	gittest.Git(t, f.Repos.Workspace, "bundle", "verify", "-q", f.bundle)
}

// Files that setup wrote are not the agent's work, unless the agent changed them.
func TestSetupsLeftoversAreNotTheAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"tracked": "1", "README": "x"})
	f.write(t, "package-lock.json", "{}")
	f.write(t, "touched-later", "setup")
	f.write(t, "tracked", "changed by setup")
	if _, err := f.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := f.land(t); l.Err != nil || len(l.Commits) != 0 || len(l.Warnings) != 0 {
		t.Fatalf("an agent that did nothing landed %+v", l)
	}
	f.write(t, "touched-later", "agent")
	f.write(t, "new", "agent")
	l := f.land(t)
	if l.Err != nil || len(l.Commits) != 1 {
		t.Fatalf("landed %+v", l)
	}
	if got := gittest.Git(t, f.Repos.Workspace, "diff", "--name-only", f.base, l.Head); got != "new\ntouched-later" {
		t.Errorf("the commit has %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(f.Repos.Workspace, "package-lock.json")); err != nil || string(b) != "{}" {
		t.Errorf("setup's file is gone: %q, %v", b, err)
	}
	if got := gittest.Git(t, f.Repos.Workspace, "diff", "--cached", "--name-only"); got != "" {
		t.Errorf("the index still has %q", got)
	}
}
