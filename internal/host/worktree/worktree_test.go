package worktree

import (
	"errors"
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
