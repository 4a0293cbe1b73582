package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// boxSpec completes a spec with what a project asks for, or what a repository says of itself.
func (a *App) boxSpec(ctx context.Context, s *sandbox.Spec, project, repo, ref string) error {
	g, err := a.standing(ctx, project, repo, ref)
	if err != nil {
		return err
	}
	p := g.Project
	box := p.Spec()
	s.Box, s.Repo, s.Ref = &box, p.Repo, p.Branch
	if g.Found == nil {
		if s.Project, err = filepath.Abs(p.File); err != nil {
			return fmt.Errorf("find the project file: %w", err)
		}
	}
	if s.Image == "" {
		s.Image = box.Image
	}
	if s.OCIRuntime == "" {
		s.OCIRuntime = box.OCIRuntime
	}
	if s.Network == "" {
		s.Network = sandbox.Network(box.Network.Mode)
	}
	if s.Limits.MemoryBytes == 0 {
		s.Limits.MemoryBytes = box.Limits.MemoryBytes
	}
	if s.Limits.CPUs == 0 {
		s.Limits.CPUs = box.Limits.CPUs
	}
	if s.Limits.PIDs == 0 {
		s.Limits.PIDs = box.Limits.PIDs
	}
	return nil
}

// standing finds the project of a box without a task.
func (a *App) standing(ctx context.Context, project, repo, ref string) (*resolve.Resolved, error) {
	f := &resolve.Flags{Project: project, ProjectsDir: a.Getenv(envName("projects-dir")), Values: map[string]string{}, Sources: map[string]string{}}
	for flag, v := range map[string]string{"repo": repo, "branch": ref} {
		if v != "" {
			f.Values[flag], f.Sources[flag] = v, "--"+flag
		}
	}
	return a.resolver(false).Find(ctx, f)
}

// boxSecrets are the secrets of a box each time that it starts: nothing keeps them.
func (a *App) boxSecrets(ctx context.Context, s sandbox.Spec) (sandbox.Secrets, error) {
	if s.Project == "" && (s.Repo == "" || filepath.IsAbs(s.Repo)) {
		return sandbox.Secrets{}, nil
	}
	find := a.resolver(false)
	if s.Project == "" {
		git, err := find.Credentials.Git(ctx, s.Repo)
		return sandbox.Secrets{Git: git}, err
	}
	g, err := a.standing(ctx, s.Project, s.Repo, s.Ref)
	if err != nil {
		return sandbox.Secrets{}, err
	}
	values, git, err := g.Standing(ctx, find.Credentials)
	return sandbox.Secrets{Values: values, Git: git}, err
}

// boxProgress tells a person what is done until a box is ready.
func (a *App) boxProgress() func(string) {
	if !a.color(a.Stderr) && !a.verbose {
		return nil
	}
	return func(line string) { fmt.Fprintln(a.Stderr, text.Clean(line)) }
}
