package proof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// restorer records how a side's checkout differs from its commit now. undo restores that state: files that git knows
// are restored if they did not differ before, and new files that git does not ignore are removed. Ignored files stay.
func (r *stores) restorer(ctx context.Context, s *side) (undo func(context.Context) error, err error) {
	repo := r.checkoutOf(s)
	changed, others, err := differences(ctx, repo)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		changedNow, othersNow, err := differences(ctx, repo)
		if err != nil {
			return err
		}
		maps.DeleteFunc(changedNow, func(path string, _ bool) bool { return changed[path] })
		if len(changedNow) > 0 {
			in := repo
			for _, path := range slices.Sorted(maps.Keys(changedNow)) {
				in.Stdin += path + "\x00"
			}
			if err := in.Run(ctx, "checkout-index", "--force", "-z", "--stdin"); err != nil {
				return err
			}
		}
		for path := range othersNow {
			if !others[path] {
				if rerr := s.root.RemoveAll(path); !errors.Is(rerr, fs.ErrNotExist) {
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
