package resolve

import (
	"context"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// secrets resolves the project's references. The commands of a project that came with a repository run in a folder that has only
// what the user trusted of it.
func (g *Resolved) secrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	values, absent, err := g.values(ctx, find, g.Project.Secrets)
	if err != nil {
		return nil, err
	}
	return values, g.hasKey(find.Getenv, values, absent)
}

// Standing is what a box without a task gets of the project's secrets, which is those that are there, and the credential of its repository. A
// harness that is not asked to work needs no key.
func (g *Resolved) Standing(ctx context.Context, find *credentials.Finder) (values map[string]string, git *workorder.GitCredential, err error) {
	var there []projects.Secret
	for _, s := range g.Project.Secrets {
		if credentials.Absent(find.Getenv, s) == nil {
			there = append(there, s)
		}
	}
	if values, _, err = g.values(ctx, find, there); err != nil {
		return nil, nil, err
	}
	if g.Local == nil && g.Project.Repo != "" {
		git, err = find.Git(ctx, g.Project.Repo)
	}
	return values, git, err
}

// AgentSecrets are the values of the secrets that are for agents alone. One that is not there is an error, unless the project goes without it.
func (g *Resolved) AgentSecrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	var own []projects.Secret
	for _, s := range g.Project.Secrets {
		if s.Use == workorder.ForAgent {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	values, _, err := g.values(ctx, find, own)
	return values, err
}

func (g *Resolved) values(ctx context.Context, find *credentials.Finder, refs []projects.Secret) (values map[string]string, absent map[string]error, err error) {
	dir := ""
	if g.trustedSum != "" && slices.ContainsFunc(refs, func(s projects.Secret) bool { return s.Has(projects.SecretCmd) }) {
		staged, remove, err := trust.Stage(g.asRead, g.trustedSum)
		if err != nil {
			return nil, nil, fault.New(workorder.ExitInvalid, err, "look at it, then start again")
		}
		defer remove()
		dir = staged
	}
	return find.Secrets(ctx, refs, dir)
}

// FindSecrets prepares what must not be in the order. The git credential is needed to read the remote; the
// secrets are read right before the box starts, and only those that are seen to be missing are reported now.
func (g *Resolved) FindSecrets(ctx context.Context, find *credentials.Finder) error {
	if g.lacks != nil {
		return g.lacks
	}
	return g.FindCredentials(ctx, find)
}

// FindCredentials is FindSecrets, also of a project that lacks some: its remote can be asked without them.
func (g *Resolved) FindCredentials(ctx context.Context, find *credentials.Finder) (err error) {
	g.Job.Secrets = func(ctx context.Context) (map[string]string, error) { return g.secrets(ctx, find) }
	o, job := &g.Job.Order, g.Job
	if g.Local == nil && o.Repo != "" {
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
		job.ForgeToken = "" // the box makes its own when needed
	}
	if token.Renew || job.Git != nil && job.Git.Renew {
		job.App, err = find.App()
	}
	return err
}
