package tree

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// NestedRepoWarnings warns of repositories inside the work tree whose own history is not kept.
func (t *WorkTree) NestedRepoWarnings(ctx context.Context, base, head string) (warnings []string) {
	roots, seen := map[string]bool{}, map[string]bool{".": true}
	// An error costs only a warning: the work matters more.
	_ = changes(ctx, t.Repos.Outbox(), func(path, entry string) {
		if strings.HasPrefix(entry, ":000000 "+gitlink+" ") {
			warnings = append(
				warnings, fmt.Sprintf("%s is a separate repository: the branch names its commit, its files are not part of the branch", path),
			)
		}
		for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if t.repository(dir) {
				roots[dir] = true
			}
		}
	}, "diff-tree", "-r", "-z", "--diff-filter=A", "--no-renames", base, head, "--")
	if len(roots) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%s: the agent made a repository there; its files are part of the branch, its own history is not kept",
			Named(slices.Sorted(maps.Keys(roots))),
		))
	}
	return warnings
}

const lfsDir = ".git/lfs/objects"

// lfsObjects returns lfsDir if it is not empty; root's pushes do not include it.
func (t *WorkTree) lfsObjects(ctx context.Context) (list []string, n int) {
	if n = t.countLFS(ctx); n == 0 {
		return nil, 0
	}
	return []string{lfsDir}, n
}

// countLFS runs as the agent's user, because the directory may be redirected during the walk.
func (t *WorkTree) countLFS(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	out, err := t.shell(ctx, "test ! -d "+lfsDir+" || find "+lfsDir+" -type f -printf .", "")
	if err != nil {
		return 0 // unreadable files are not counted
	}
	return len(out)
}
