package publish

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// inside warns of repositories that the agent made inside the work tree, whose own
// history is not kept, and of those of which the branch has no more than an id.
func (p *Publisher) inside(ctx context.Context, base, head string) (warnings []string) {
	roots, seen := map[string]bool{}, map[string]bool{".": true}
	// A warning less where that fails: the work is what counts.
	_ = changes(ctx, p.outbox(), func(path, entry string) {
		if strings.HasPrefix(entry, ":000000 "+gitlink+" ") {
			warnings = append(warnings, fmt.Sprintf("%s is a repository of its own: the branch names its commit, its files are not part of the branch", path))
		}
		for dir := filepath.Dir(path); !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if p.repository(dir) {
				roots[dir] = true
			}
		}
	}, "diff-tree", "-r", "-z", "--diff-filter=A", "--no-renames", base, head, "--")
	if len(roots) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: the agent made a repository there; its files are part of the branch, its own history is not kept", named(slices.Sorted(maps.Keys(roots)))))
	}
	return warnings
}

// lfsDir is where Git LFS keeps what pointers stand for.
const lfsDir = ".git/lfs/objects"

// lfsObjects is lfsDir where it has something, which no push of ours brings to the remote.
func (p *Publisher) lfsObjects() []string {
	if p.countLFS() == 0 {
		return nil
	}
	return []string{lfsDir}
}

func (p *Publisher) countLFS() (n int) {
	_ = filepath.WalkDir(filepath.Join(p.Workspace, lfsDir), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil //nolint:nilerr // what cannot be read is not counted
	})
	return n
}
