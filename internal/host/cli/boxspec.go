package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
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
		s.Network = sandbox.NetworkMode(box.Network.Mode)
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
	if s.Runtime == sandbox.RuntimeAuto || s.Runtime == sandbox.RuntimeBox {
		return nil
	}
	if only := boxOnly(box); len(only) > 0 {
		return fault.New(workorder.ExitInvalid, fmt.Errorf("runtime %s: project %s has what a box alone can have: %s", s.Runtime, p.Name, strings.Join(only, ", ")),
			"leave out --runtime, or that of the project; secrets with `for: agent` are of each kind")
	}
	s.Box = nil
	s.Allow = slices.Concat(box.Network.Allow, s.Allow)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(box.Env))) {
		s.Env = slices.Insert(s.Env, 0, name+"="+box.Env[name]) // what the command line says comes later, and counts
	}
	s.ImageEnv = box.ImageEnv
	return nil
}

// boxOnly are the project's keys that sandboxes of other kinds than a box cannot have.
func boxOnly(b workorder.Spec) (keys []string) {
	for _, row := range []struct {
		key   string
		there bool
	}{
		{"services", len(b.Services) > 0},
		{"supabase", b.Supabase},
		{"packages", len(b.Packages) > 0},
		{"tools", len(b.Tools) > 0},
		{"lifecycle.setup", len(b.Setup) > 0},
		{"gateway", len(b.Gateway.Routes) > 0},
		{"network.dns", len(b.Network.DNS) > 0},
		{"isolation", b.Isolation == workorder.IsolationPrivileged},
		{"limits.disk", b.Limits.DiskBytes > 0},
	} {
		if row.there {
			keys = append(keys, row.key)
		}
	}
	for _, name := range b.SecretNames {
		if b.SecretUses[name] != workorder.ForAgent {
			keys = append(keys, "secrets."+name)
		}
	}
	return keys
}

// standing finds the project of a box without a task.
func (a *App) standing(ctx context.Context, project, repo, ref string) (*resolve.Resolved, error) {
	f := &resolve.Flags{Project: project, ProjectsDir: a.Getenv(app.EnvName("projects-dir")), Values: map[string]string{}, Sources: map[string]string{}}
	for flag, v := range map[string]string{"repo": repo, "branch": ref} {
		if v != "" {
			f.Values[flag], f.Sources[flag] = v, "--"+flag
		}
	}
	return a.resolver(false).Find(ctx, f)
}

// standingOf finds the project of a sandbox that is there.
func (a *App) standingOf(ctx context.Context, s sandbox.Spec) (*resolve.Resolved, error) {
	if s.Worktree != "" {
		s.Ref = "" // it is one of the worktree's repository
	}
	return a.standing(ctx, s.Project, s.Repo, s.Ref)
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
	g, err := a.standingOf(ctx, s)
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
