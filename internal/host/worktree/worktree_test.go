package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// What a killed process left is said, and when it is removed as was said, a worktree can be made again.
func TestLeft(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "base")
	w := Of(t.TempDir(), "dev", repo)
	if _, err := w.Add(t.Context(), "main", -1, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(t.Context(), "main", -1, -1); !errors.Is(err, ErrBranchExists) {
		t.Errorf("over another: %v", err)
	}
	gittest.Git(t, repo, "worktree", "remove", "--force", w.Tree())
	gittest.Git(t, repo, "branch", "-D", w.Branch)
	if _, err := w.Add(t.Context(), "main", -1, -1); err != nil {
		t.Error(err)
	}
}

// A worktree of a sparse repository is sparse for the sandbox's git as well: it would not look at files outside of the patterns otherwise, and lose them.
func TestSparse(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(repo, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repo, d, "f"), []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-q", "-m", "base")
	gittest.Git(t, repo, "sparse-checkout", "set", "a")
	w := Of(t.TempDir(), "dev", repo)
	if _, err := w.Add(t.Context(), "main", -1, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.Tree(), "b")); err == nil {
		t.Fatal("all is checked out")
	}
	own := func(args ...string) string {
		return gittest.Git(t, w.Tree(), append([]string{"--git-dir=" + w.own(), "--work-tree=" + w.Tree()}, args...)...)
	}
	if got := own("sparse-checkout", "list"); got != "a" {
		t.Error(got)
	}
	if err := os.Mkdir(filepath.Join(w.Tree(), "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Tree(), "b", "f"), []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := own("diff-files", "--name-only"); got != "b/f" {
		t.Errorf("%q", got)
	}
}

// Git in the tree runs nothing of it, wherever the repository's settings lead, and a program that only the tree can have is refused.
func TestHooks(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "base")
	gittest.Git(t, repo, "config", "core.hooksPath", ".husky")
	gittest.Git(t, repo, "config", "core.fsmonitor", "./monitor")
	w := Of(t.TempDir(), "dev", repo)
	if _, err := w.Add(t.Context(), "main", -1, -1); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(t.TempDir(), "canary")
	program := []byte("#!/bin/sh\necho >>" + canary + "\n")
	if err := os.Mkdir(filepath.Join(w.Tree(), ".husky"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".husky/post-index-change", ".husky/pre-commit", ".husky/reference-transaction", "monitor"} {
		if err := os.WriteFile(filepath.Join(w.Tree(), name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, w.Tree(), "status")
	gittest.Git(t, w.Tree(), "add", "-A")
	gittest.Git(t, w.Tree(), "commit", "-q", "-m", "work")
	if _, err := os.Stat(canary); err == nil {
		t.Error("a program of the tree ran")
	}
	gittest.Git(t, w.Tree(), "worktree", "add", "-q", "-b", "other", filepath.Join(t.TempDir(), "other"))
	for _, key := range []string{"diff.external", "filter.x.clean", "core.editor"} {
		gittest.Git(t, repo, "config", key, "./program")
		if err := w.Guard(t.Context()); err == nil {
			t.Errorf("%s in the tree is not refused", key)
		}
		gittest.Git(t, repo, "config", "--unset", key)
	}
}

// A bare repository stays one, and its other worktrees stay worktrees, when worktrees may have settings of their own.
func TestBare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repo, bare := filepath.Join(dir, "repo"), filepath.Join(dir, "bare.git")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "base")
	gittest.Git(t, dir, "clone", "-q", "--bare", repo, bare)
	gittest.Git(t, bare, "worktree", "add", "-q", "-b", "user", filepath.Join(dir, "user"))
	w := Of(t.TempDir(), "dev", bare)
	if _, err := w.Add(t.Context(), "main", -1, -1); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{bare: "true", filepath.Join(dir, "user"): "false", w.Tree(): "false"} {
		if got := gittest.Git(t, at, "rev-parse", "--is-bare-repository"); got != want {
			t.Errorf("%s is bare: %s", at, got)
		}
	}
}

// What was deleted of a worktree is made anew from its branch, also where its files belong to the sandbox's user.
func TestRebuild(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "base")
	uid := -1
	if os.Geteuid() == 0 {
		uid = 54321
	}
	state := t.TempDir()
	w := Of(state, "dev", repo)
	if _, err := w.Add(t.Context(), "main", uid, uid); err != nil {
		t.Fatal(err)
	}
	if err := w.Guard(t.Context()); err != nil {
		t.Error(err)
	}
	if w.Gone() || Find(state, "dev").Repo == "" || Find(state, "other") != nil {
		t.Error("it is not what it is")
	}
	for _, gone := range []string{w.Tree(), w.own(), filepath.Join(w.Tree(), ".git"), w.dir} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		if !w.Gone() {
			t.Errorf("%s is not missed", gone)
		}
		if err := w.Rebuild(t.Context(), "", "CLONE base", uid, uid); err != nil {
			t.Fatal(err)
		}
		name, err := os.ReadFile(filepath.Join(w.own(), "sandbox-agent"))
		if err != nil || string(name) != "CLONE base\n" || w.Gone() {
			t.Errorf("%s: %q, %v", gone, name, err)
		}
	}
	// With its branch gone, too, it is the commit that was saved.
	saved := w.Head(t.Context())
	gittest.Git(t, repo, "update-ref", "-d", "refs/heads/"+w.Branch)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := w.Rebuild(t.Context(), "", "", uid, uid); err == nil {
		t.Error("it was made of nothing")
	}
	if err := w.Rebuild(t.Context(), saved, "", uid, uid); err != nil || w.Head(t.Context()) != saved {
		t.Errorf("%v", err)
	}
}

// The first worktrees of a repository, made at once, all change its settings.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	repo, state := filepath.Join(t.TempDir(), "repo"), t.TempDir()
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "base")
	const most = 8
	made := make(chan error, most)
	for i := range most {
		go func() {
			_, err := Of(state, "dev"+strconv.Itoa(i), repo).Add(t.Context(), "main", -1, -1)
			made <- err
		}()
	}
	for range most {
		if err := <-made; err != nil {
			t.Error(err)
		}
	}
}
