package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// secrets resolves the project's references. The commands of a project that came with a repository run where nothing of it lies but
// what the user trusted.
func (r *resolved) secrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	refs := r.project.Secrets
	if r.trustedSum == "" || !slices.ContainsFunc(refs, func(s projects.Secret) bool { return s.Scheme == projects.SecretCmd }) {
		return find.Secrets(ctx, refs, "")
	}
	dir, remove, err := trust.Stage(r.project, r.trustedSum)
	if err != nil {
		return nil, fault.New(workorder.ExitInvalid, err, "look at it, then start again")
	}
	defer remove()
	return find.Secrets(ctx, refs, dir)
}

// findSecrets prepares what must not be in the order: the git credential is needed for
// looks at the remote; the secrets are read right before the box starts, and only what can be seen
// to be missing is told now.
func findSecrets(ctx context.Context, find *credentials.Finder, r *resolved) (err error) {
	if r.project.LacksKey() {
		return fault.New(workorder.ExitInvalid, fmt.Errorf("the harness %s has no key: neither secrets nor env of the project give it one", r.project.Harness.Name), r.project.KeyHint())
	}
	refs := r.project.Secrets
	if err := credentials.CheckSecrets(find.Getenv, refs); err != nil {
		return err
	}
	r.job.Secrets = func(ctx context.Context) (map[string]string, error) { return r.secrets(ctx, find) }
	o, job := &r.job.Order, r.job
	if r.local == nil && o.Repo != "" {
		if job.Git, err = find.Git(ctx, o.CloneURL); err != nil {
			return err
		}
	}
	var token credentials.ForgeToken
	if o.Repo != "" && o.PR != nil {
		if token, err = find.Forge(ctx, o.Repo, o.PR); err != nil {
			return err
		}
	}
	job.ForgeToken = token.Token
	if token.Renew {
		job.ForgeToken = "" // the box makes its own when it needs one
	}
	if token.Renew || job.Git != nil && job.Git.Renew {
		job.App, err = find.App()
	}
	return err
}
