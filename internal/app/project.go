package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ApplyProject completes a spec with the keys of a project file, or with what was detected in a repository.
func (b Sandboxes) ApplyProject(ctx context.Context, s *sandbox.Spec, project, repo, ref string) error {
	g, err := b.findProject(ctx, project, repo, ref)
	if err != nil {
		return err
	}
	p := g.Project
	box := p.Spec()
	if s.Box, err = boxSpec(box); err != nil {
		return err
	}
	s.Repo, s.Ref = p.Repo, p.Branch
	if len(p.Repos) > 0 {
		b.Say("note: repos of the project file are for tasks; name several repositories with: --repo NAME=REPO")
	}
	if g.Found == nil {
		if s.Project, err = filepath.Abs(p.File); err != nil {
			return fmt.Errorf("find the project file: %w", err)
		}
	}
	s.Image, s.OCIRuntime, s.Author = cmp.Or(s.Image, box.Image), cmp.Or(s.OCIRuntime, box.OCIRuntime), cmp.Or(s.Author, p.Author)
	s.Network = cmp.Or(s.Network, sandbox.NetworkMode(box.Network.Mode))
	s.Limits.MemoryBytes = cmp.Or(s.Limits.MemoryBytes, box.Limits.MemoryBytes)
	s.Limits.CPUs = cmp.Or(s.Limits.CPUs, box.Limits.CPUs)
	s.Limits.PIDs = cmp.Or(s.Limits.PIDs, box.Limits.PIDs)
	if s.Runtime == sandbox.RuntimeAuto || s.Runtime == sandbox.RuntimeBox {
		return nil
	}
	if only := boxOnly(box); len(only) > 0 {
		err := fmt.Errorf("runtime %s: project %s has what a box alone can have: %s", s.Runtime, p.Name, strings.Join(only, ", "))
		return exiterr.New(workorder.ExitInvalid, err,
			"choose another runtime, or leave these keys out of the project; secrets with `for: agent` are of each kind")
	}
	s.Box = nil
	if s.Runtime == sandbox.RuntimeContainer && s.Image == "" {
		if s.Image, err = containerImage(ctx, b, box.Parts...); err != nil {
			return err
		}
	}
	s.Allow = slices.Concat(box.Network.Allow, s.Allow)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(box.Env))) {
		s.Env = slices.Insert(s.Env, 0, name+"="+box.Env[name]) // what the command line says comes later, and counts
	}
	s.ImageEnv = box.ImageEnv
	return nil
}

// boxSpec returns the part of a project that configures a box. It has the same names in JSON.
func boxSpec(b workorder.BoxSpec) (*sandbox.BoxSpec, error) {
	doc, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	var s sandbox.BoxSpec
	return &s, json.Unmarshal(doc, &s)
}

// boxOnly returns the project's keys that only runtime box supports.
func boxOnly(b workorder.BoxSpec) (keys []string) {
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
		if b.SecretUses[name] != workorder.SecretForAgent {
			keys = append(keys, "secrets."+name)
		}
	}
	return keys
}

// findProject finds the project of a standalone sandbox.
func (b Sandboxes) findProject(ctx context.Context, project, repo, ref string) (*resolve.Resolved, error) {
	f := &resolve.Flags{
		Project: project, ProjectsDir: b.Getenv(EnvName("projects-dir")), Values: map[string]string{}, Sources: map[string]string{},
	}
	for flag, v := range map[string]string{"repo": repo, "branch": ref} {
		if v != "" {
			f.Values[flag], f.Sources[flag] = v, "--"+flag
		}
	}
	return b.Resolver(true).Find(ctx, f)
}

// Project finds the project of a sandbox that was created before.
func (b Sandboxes) Project(ctx context.Context, s sandbox.Spec) (*resolve.Resolved, error) {
	if s.Worktree != "" {
		s.Ref = "" // it is a ref of the worktree's repository
	}
	return b.findProject(ctx, s.Project, s.Repo, s.Ref)
}

// projectSecrets returns a sandbox's secrets for one start: nothing stores them.
func (e *Env) projectSecrets(ctx context.Context, s sandbox.Spec) (sandbox.Secrets, error) {
	if s.Project == "" && (s.Repo == "" || filepath.IsAbs(s.Repo)) {
		return sandbox.Secrets{}, nil
	}
	credentials := e.Resolver(true).Credentials
	if s.Project == "" {
		git, err := credentials.Git(ctx, s.Repo)
		return sandbox.Secrets{Git: (*sandbox.GitCredential)(git)}, err
	}
	g, err := e.Sandboxes().Project(ctx, s)
	if err != nil {
		return sandbox.Secrets{}, err
	}
	values, git, missing, err := g.SandboxSecrets(ctx, credentials)
	for _, lacks := range missing {
		e.Warn("left out: " + lacks.Error())
	}
	return sandbox.Secrets{Values: values, Git: (*sandbox.GitCredential)(git)}, err
}
