package claim

import (
	"context"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Fetch fetches the remote's branches and tags into the mirror and returns the
// base branch (the remote's default if the order names none) and its commit.
// If the remote lacks the base branch, the error is of kind git.KindNotFound.
func (ls *Claimer) Fetch(ctx context.Context) (base, sha string, err error) {
	if err := ls.Repos.Open(ctx); err != nil {
		return "", "", err
	}
	ls.unbundle(ctx)
	base, sha, err = ls.Repos.BaseBranch(ctx)
	if git.KindOf(err) == git.KindNotFound && ls.Repos.Order.MayGoOn() {
		// The branch may have been renamed or deleted since; the task's first commit is known.
		if v, lerr := ls.look(ctx); lerr == nil && v.state != nil && git.ValidSHA(v.state.BaseSHA) &&
			ls.Repos.Mirror().Run(ctx, "cat-file", "-e", v.state.BaseSHA+"^{commit}") == nil {
			return v.state.BaseBranch, v.state.BaseSHA, nil
		}
	}
	return base, sha, err
}
