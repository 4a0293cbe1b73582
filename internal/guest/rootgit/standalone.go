package rootgit

import (
	"context"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standalone checks the base out for a standalone box, unless the work tree exists already.
func (r *Repository) standalone(ctx context.Context) (CloneResult, error) {
	by, local := "", r.env.Order.CloneURL == workorder.RepoIn
	if local {
		// All users in the box may fetch from it, as from a remote.
		if err := os.Chmod(workorder.RepoIn, 0o444); err != nil && !r.cfg.Again {
			return CloneResult{}, fmt.Errorf("read the repository from the host: %w", err)
		}
	}
	if !local {
		// The gateway outlives the step that starts it.
		var err error
		if by, err = r.Gate.Start(context.WithoutCancel(ctx)); err != nil {
			return CloneResult{}, err
		}
	}
	if err := r.cfg.Space.ConfigureGit(
		r.Repos.Order.Author, []string{r.cfg.Space.Dir, r.Repos.Mirror().Dir}, r.Repos.Order.CloneURL, by,
	); err != nil {
		return CloneResult{}, err
	}
	if r.cfg.Again {
		return CloneResult{}, nil
	}
	base, sha, err := r.Claimer.Fetch(ctx)
	if err != nil {
		return CloneResult{}, err
	}
	if err := r.Checkpoints.CheckoutStandalone(ctx, base, sha, r.env.Order.TargetBranch); err != nil {
		return CloneResult{}, err
	}
	return CloneResult{Result: claim.Result{Base: base, BaseSHA: sha, Head: sha}}, nil
}
