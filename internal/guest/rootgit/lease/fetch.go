package lease

import (
	"context"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Fetch brings the remote's branches and tags into the mirror and returns the
// base branch (asked of the remote when the order names none) and its commit.
// A base branch that the remote does not have is an error of kind git.KindNotFound.
func (ls *Lease) Fetch(ctx context.Context) (base, sha string, err error) {
	if err := ls.repos.Open(ctx); err != nil {
		return "", "", err
	}
	ls.unbundle(ctx)
	base, sha, err = ls.repos.BaseBranch(ctx)
	if git.KindOf(err) == git.KindNotFound && ls.repos.Order.MayGoOn() {
		// The branch may have been renamed or deleted since: where the task began is known.
		if v, lerr := ls.look(ctx); lerr == nil && v.state != nil && git.ValidSHA(v.state.BaseSHA) && ls.repos.Mirror().Run(ctx, "cat-file", "-e", v.state.BaseSHA+"^{commit}") == nil {
			return v.state.BaseBranch, v.state.BaseSHA, nil
		}
	}
	return base, sha, err
}
