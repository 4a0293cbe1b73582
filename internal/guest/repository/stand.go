package repository

import (
	"context"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// stand checks the base out for a standalone box, which holds no lease and pushes nothing. In a box that is
// started again the work tree exists already.
func (r *Repository) stand(ctx context.Context) (boot.Cloned, error) {
	by, local := "", r.env.Order.CloneURL == workorder.RepoIn
	if local {
		// All users in the box may fetch from it, as from a remote.
		if err := os.Chmod(workorder.RepoIn, 0o444); err != nil && !r.again {
			return boot.Cloned{}, fmt.Errorf("read the repository from the host: %w", err)
		}
	}
	if !local {
		// The gateway outlives the step that starts it.
		var err error
		if by, err = r.Gate.Start(context.WithoutCancel(ctx)); err != nil {
			return boot.Cloned{}, err
		}
	}
	if err := r.space.ConfigureGit(
		r.Git.Repos.Order.Author, []string{r.space.Dir, r.Git.Repos.Mirror().Dir}, r.Git.Repos.Order.CloneURL, by,
	); err != nil {
		return boot.Cloned{}, err
	}
	if r.again {
		return boot.Cloned{}, nil
	}
	base, sha, err := r.Git.Claimer.Fetch(ctx)
	if err != nil {
		return boot.Cloned{}, err
	}
	if err := r.Git.Checkpoints.CheckoutStandalone(ctx, base, sha, r.env.Order.TargetBranch); err != nil {
		return boot.Cloned{}, err
	}
	return boot.Cloned{Base: base, BaseSHA: sha, Head: sha}, nil
}
