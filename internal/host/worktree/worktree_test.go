package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
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
	if _, err := w.Add(t.Context(), "main", -1, -1); !errors.Is(err, ErrBranch) {
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
