package tree

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A stop may come right after a commit that is too large to be pushed in time. Then all small changes since the
// remote's branch go first, as a separate commit on top of it. If everything lands after all, that commit's ref is
// deleted.

const (
	// FirstFile and firstBytes bound the small changes: pushing them must take less than a second on a line of 100 Mbit/s.
	FirstFile  = 1 << 20
	firstBytes = 8 << 20
)

// FirstCommit creates the commit; it is empty if there are no large or no small changes.
func (s *Checkpointer) FirstCommit(ctx context.Context) (string, error) {
	if err := s.Index.prepareSide(); err != nil {
		return "", err
	}
	base := cmp.Or(s.Ledger.Refs[workorder.BranchRef(s.Ledger.Branch())], s.Ledger.State.BaseSHA)
	small, drop, large, err := s.changedSince(ctx, base)
	if err != nil || !large || len(small)+len(drop) == 0 {
		return "", err
	}
	t := s.Repos.Tree()
	t.Env = append(t.Env, "GIT_INDEX_FILE="+s.Repos.SidePath(firstIndex))
	if err := t.Run(ctx, "read-tree", base); err != nil {
		return "", err
	}
	a, err := s.Index.adder(ctx, t, func() { _ = s.Index.prepareSide() })
	if err != nil {
		return "", err
	}
	if left := a.all(ctx, small); left != nil && len(left.Paths) == len(small) {
		return "", left
	}
	if len(drop) > 0 {
		t.Stdin = strings.Join(drop, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	if setup, err := s.setupEntries(ctx, t, base); err != nil {
		return "", err
	} else if setup != "" {
		t.Stdin = setup
		if err := t.Run(ctx, "update-index", "--replace", "-z", "--index-info"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	tree, err := t.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	out, err := s.Repos.Outbox().Output(
		ctx, "commit-tree", "-p", base, "-m",
		fmt.Sprintf("Small changes of task %s, saved before the large ones\n\n%s: %d", s.Repos.Order.TaskID, madeBy, s.Ledger.AttemptNumber()),
		strings.TrimSpace(string(tree)),
	)
	return strings.TrimSpace(string(out)), err
}

// changedSince lists the work tree's differences from a commit: committed since, and uncommitted.
func (s *Checkpointer) changedSince(ctx context.Context, base string) (small []File, drop []string, large bool, err error) {
	raw, err := s.Index.unfiltered(ctx, s.Repos.Tree())
	if err != nil {
		return nil, nil, false, err
	}
	f, err := s.Work.survey(ctx, raw)
	if err != nil {
		return nil, nil, false, err
	}
	files, seen := slices.Clone(f.files), map[string]bool{}
	for _, one := range files {
		seen[one.Path] = true
	}
	drop = f.drop
	if head, herr := s.Repos.Tree().Head(ctx); herr == nil && git.ValidSHA(head) && head != base {
		err = s.Repos.Tree().Each(ctx, func(path string) {
			if seen[path] {
				return
			}
			seen[path] = true
			st, err := os.Lstat(filepath.Join(s.Repos.Workspace, path))
			switch {
			case err != nil:
				drop = append(drop, path)
			case st.Mode().IsRegular() || st.Mode()&os.ModeSymlink != 0:
				files = append(files, File{Path: path, Size: st.Size()})
			}
		}, "diff-tree", "-r", "-z", "--no-renames", "--name-only", base, head)
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Size, b.Size) })
	left := int64(firstBytes)
	for _, one := range files {
		if left -= one.Size; one.Size > FirstFile || left < 0 {
			large = true
			continue
		}
		small = append(small, one)
	}
	return small, drop, large, err
}
