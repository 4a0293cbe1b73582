package branch_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

const taskBranch = "agent/T-A1B2C3D4-x"

// repository has a task's branch with one commit: a changes, new is there; a program of its configuration must never run.
func repository(t *testing.T) (dir string, w branch.Source) {
	t.Helper()
	dir = t.TempDir()
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, dir, args...) }
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Ada") // the machine may know no user
	git("config", "user.email", "ada@example.com")
	write(t, filepath.Join(dir, "a"), "one\ntwo\nthree\n")
	write(t, filepath.Join(dir, "b"), "b\n")
	git("add", "-A")
	git("commit", "-q", "-m", "base")
	base := git("rev-parse", "HEAD")
	git("switch", "-q", "-c", taskBranch)
	write(t, filepath.Join(dir, "a"), "one\ntwo\n3\n")
	write(t, filepath.Join(dir, "new"), "new\n")
	write(t, filepath.Join(dir, ".gitattributes"), "* diff=evil filter=evil\n")
	git("add", "-A")
	git("commit", "-q", "-m", "work")
	head := git("rev-parse", "HEAD")
	git("switch", "-q", "main")
	ran := filepath.Join(t.TempDir(), "ran")
	for _, key := range []string{"diff.evil.command", "diff.evil.textconv", "filter.evil.smudge", "filter.evil.clean"} {
		git("config", key, "touch "+ran+"; cat")
	}
	write(t, filepath.Join(dir, ".git", "hooks", "post-checkout"), "#!/bin/sh\ntouch "+ran+"\n")
	if err := os.Chmod(filepath.Join(dir, ".git", "hooks", "post-checkout"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(ran); err == nil {
			t.Error("a program that the repository names ran")
		}
	})
	return dir, branch.Source{Of: "task T-A1B2C3D4", Branch: taskBranch, Repo: dir, Base: base, Head: head}
}

func target(t *testing.T, w branch.Source, dir string) *branch.Target {
	t.Helper()
	p, err := w.Target(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDiff(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	var out strings.Builder
	if err := target(t, w, "/").Diff(t.Context(), &out, "--name-only"); err != nil || out.String() != ".gitattributes\na\nnew\n" {
		t.Errorf("%q, %v", &out, err)
	}
	for _, setting := range []string{
		"diff.noprefix=true", "diff.mnemonicPrefix=true", "color.ui=always", "color.diff=always", "diff.context=0", "diff.submodule=log", "diff.wordRegex=.",
		"diff.renames=copies", "diff.ignoreSubmodules=all", "diff.relative=true", "diff.orderFile=none", "diff.interHunkContext=9", "diff.suppressBlankEmpty=true", "diff.evil.binary=true", "format.pretty=%s",
		"diff.colorMoved=zebra", "diff.wsErrorHighlight=all", "core.quotePath=false", "diff.algorithm=patience",
	} {
		key, value, _ := strings.Cut(setting, "=")
		gittest.Git(t, dir, "config", key, value)
	}
	patch := filepath.Join(t.TempDir(), "patch")
	f, err := os.Create(patch)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(target(t, w, "/").Diff(t.Context(), f, "--binary"), f.Close()); err != nil {
		t.Fatal(err)
	}
	clone := t.TempDir()
	gittest.Git(t, clone, "clone", "-q", dir, ".")
	gittest.Git(t, clone, "apply", "--index", patch)
	if got, want := gittest.Git(t, clone, "write-tree"), gittest.Git(t, dir, "rev-parse", w.Head+"^{tree}"); got != want {
		t.Errorf("the patch makes the tree %s, want %s:\n%s", got, want, read(t, patch))
	}
	if got := gittest.Git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("changed %q", got)
	}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	write(t, filepath.Join(dir, "a"), "mine\n")
	if _, err := target(t, w, "/").Checkout(t.Context()); exiterr.Code(err) != workorder.ExitGit || read(t, filepath.Join(dir, "a")) != "mine\n" {
		t.Errorf("over a change: %v", err)
	}
	write(t, filepath.Join(dir, "a"), "one\ntwo\nthree\n")
	before, err := target(t, w, "/").Checkout(t.Context())
	if err != nil || before != "main" || read(t, filepath.Join(dir, "new")) != "new\n" || gittest.Git(t, dir, "branch", "--show-current") != taskBranch {
		t.Errorf("before %q, %v", before, err)
	}
}

// A branch that an earlier checkout made is moved on to the task's last commit. Commits of the user's on top of that stay, and a branch
// beside it is not taken for it.
func TestCheckoutAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at      func(first, last string, commit func(parent string) string) string
		want    func(at, last string) string
		of      string // whose checkout made it
		refused bool
	}{
		"an earlier attempt's": {
			at:   func(first, _ string, _ func(string) string) string { return first },
			want: func(_, last string) string { return last },
		},
		"the user's on top": {
			at:   func(_, last string, commit func(string) string) string { return commit(last) },
			want: func(at, _ string) string { return at },
		},
		"an earlier checkout's, without work": {
			at:   func(first, _ string, _ func(string) string) string { return first + "~1" },
			want: func(_, last string) string { return last }, of: "task T-A1B2C3D4",
		},
		"the user's": {
			at:   func(first, _ string, _ func(string) string) string { return first + "~1" },
			want: func(at, _ string) string { return at }, of: "task T-A1B2C3D5", refused: true,
		},
		"another": {
			at:   func(first, _ string, commit func(string) string) string { return commit(first) },
			want: func(at, _ string) string { return at }, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, w := repository(t)
			first := w.Head
			commit := func(message string) func(parent string) string {
				return func(parent string) string {
					return gittest.Git(t, dir, "commit-tree", first+"^{tree}", "-p", parent, "-m", message)
				}
			}
			w.Head = commit("later")(first)
			at := gittest.Git(t, dir, "rev-parse", c.at(first, w.Head, commit("mine")))
			if c.of != "" {
				gittest.Git(t, dir, "config", "branch."+taskBranch+".sandbox-agent", c.of)
			}
			gittest.Git(t, dir, "update-ref", "refs/heads/"+taskBranch, at)
			_, err := target(t, w, "/").Checkout(t.Context())
			if (err != nil) != c.refused || c.refused && (exiterr.Code(err) != workorder.ExitGit || exiterr.Hint(err) == "") {
				t.Errorf("%v", err)
			}
			if got, want := gittest.Git(t, dir, "rev-parse", taskBranch), c.want(at, w.Head); got != want {
				t.Errorf("at %s, want %s", got, want)
			}
			if on := gittest.Git(t, dir, "branch", "--show-current"); (on == "main") != c.refused {
				t.Errorf("on %s", on)
			}
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	// The checked out branch has moved on.
	write(t, filepath.Join(dir, "b"), "moved\n")
	gittest.Git(t, dir, "commit", "-q", "-a", "-m", "later")
	write(t, filepath.Join(dir, "b"), "mine\n") // another file than the task's
	files, err := target(t, w, "/").Apply(t.Context())
	if err != nil || !slices.Equal(files, []string{".gitattributes", "a", "new"}) {
		t.Fatalf("%q, %v", files, err)
	}
	if read(t, filepath.Join(dir, "a")) != "one\ntwo\n3\n" || read(t, filepath.Join(dir, "b")) != "mine\n" {
		t.Error("the work tree has not both")
	}
	if gittest.Git(t, dir, "log", "-1", "--format=%s") != "later" {
		t.Error("something was committed")
	}
}

// Apply does all or nothing.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	write(t, filepath.Join(dir, "a"), "mine\n")
	if _, err := target(t, w, "/").Apply(t.Context()); exiterr.Code(err) != workorder.ExitGit || errors.Is(err, branch.ErrConflict) {
		t.Errorf("over a change: %v", err)
	}
	if read(t, filepath.Join(dir, "a")) != "mine\n" || read(t, filepath.Join(dir, "new")) != "" {
		t.Error("something was touched")
	}
	gittest.Git(t, dir, "commit", "-q", "-a", "-m", "conflicts")
	if _, err := target(t, w, "/").Apply(t.Context()); !errors.Is(err, branch.ErrConflict) {
		t.Errorf("a conflict: %v", err)
	}
	if got := gittest.Git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("changed %q", got)
	}
}

// A task of a remote repository is looked for in the user's clone of it, and nowhere else.
func TestClone(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	w.Repo = "https://example.com/a/b.git"
	if _, err := w.Target(t.Context(), dir); exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("no clone: %v", err)
	}
	gittest.Git(t, dir, "remote", "add", "origin", "git@example.com:a/b")
	target(t, w, dir)
	w.Head = strings.Repeat("a", 40)
	if _, err := w.Target(t.Context(), dir); exiterr.Code(err) != workorder.ExitGit || exiterr.Hint(err) == "" {
		t.Errorf("not fetched: %v", err)
	}
	w.Head = ""
	if _, err := w.Target(t.Context(), dir); exiterr.Code(err) != workorder.ExitNotFound {
		t.Errorf("no commits: %v", err)
	}
}

// The last task of a repository is one of its own, or of what it is a clone of.
func TestOf(t *testing.T) {
	t.Parallel()
	dir, _ := repository(t)
	top := localrepo.RepoRoot(dir)
	other, _ := repository(t)
	gittest.Git(t, dir, "remote", "add", "origin", "git@example.com:a/b")
	for repo, want := range map[string]bool{
		dir: true, other: false, "": false, "https://example.com/a/b.git": true, "https://example.com/a/c.git": false,
	} {
		if got := localrepo.BelongsTo(t.Context(), repo, top); got != want {
			t.Errorf("a task of %q: %v, want %v", repo, got, want)
		}
	}
}

// What is not committed is never silently aside, and a merge of the user's is not taken for this one.
func TestMergeUnfinished(t *testing.T) {
	t.Parallel()
	dir, w := repository(t)
	gittest.Git(t, dir, "-c", "core.hooksPath=/dev/null", "switch", "-q", "-c", "other")
	write(t, filepath.Join(dir, "o"), "o\n")
	gittest.Git(t, dir, "add", "o")
	gittest.Git(t, dir, "commit", "-q", "-m", "other")
	gittest.Git(t, dir, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main")
	gittest.Git(t, dir, "merge", "-q", "--no-ff", "--no-commit", "other")
	if _, err := target(t, w, "/").Merge(t.Context(), "m"); err == nil || errors.Is(err, branch.ErrConflict) {
		t.Errorf("in another merge: %v", err)
	}
	gittest.Git(t, dir, "merge", "--abort")
	write(t, filepath.Join(dir, "a"), "mine\n")
	if _, err := target(t, w, "/").Merge(t.Context(), "m"); err == nil {
		t.Error("changes that do not fit are aside, and nobody says so")
	}
	if got := gittest.Git(t, dir, "stash", "list"); got == "" {
		t.Error("the changes are lost")
	}
	// One that was killed at its end.
	write(t, filepath.Join(dir, ".git", "MERGE_HEAD"), w.Head+"\n")
	if without, err := target(t, w, "/").Merge(t.Context(), "m"); err == nil {
		t.Errorf("the merge is not concluded: %t", without)
	}
}
