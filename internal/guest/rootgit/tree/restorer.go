package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Restorer records how the work tree differs from its commit now. undo restores files that did not differ before, and
// removes new files that git does not ignore.
func (t *WorkTree) Restorer(ctx context.Context) (undo func(context.Context) error, err error) {
	r := t.Repos.Tree()
	changed, others, err := differences(ctx, r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		changedNow, othersNow, err := differences(ctx, r)
		if err != nil {
			return err
		}
		maps.DeleteFunc(changedNow, func(path string, _ bool) bool { return changed[path] })
		if len(changedNow) > 0 {
			r := r
			for _, path := range slices.Sorted(maps.Keys(changedNow)) {
				r.Stdin += path + "\x00"
			}
			if err := r.Run(ctx, "checkout-index", "--force", "-z", "--stdin"); err != nil {
				return err
			}
		}
		root, err := os.OpenRoot(t.Repos.Workspace)
		if err != nil {
			return err
		}
		defer root.Close()
		for path := range othersNow {
			if !others[path] {
				if rerr := root.RemoveAll(path); !errors.Is(rerr, fs.ErrNotExist) {
					err = errors.Join(err, rerr)
				}
			}
		}
		return err
	}, nil
}

// differences returns the files that differ from the index, and those that git neither knows nor ignores.
func differences(ctx context.Context, r git.Repo) (changed, others map[string]bool, err error) {
	changed, others = map[string]bool{}, map[string]bool{}
	err = r.Each(ctx, func(path string) { changed[path] = true }, "diff-files", "--name-only", "-z", "--ignore-submodules=all")
	oerr := r.Each(ctx, func(path string) { others[path] = true }, "ls-files", "-z", "--others", "--exclude-standard")
	if err := errors.Join(err, oerr); err != nil {
		return nil, nil, fmt.Errorf("compare the work tree with its commit: %w", err)
	}
	return changed, others, nil
}
