package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SandboxChange is another configuration of a sandbox. What it does not name stays.
type SandboxChange struct {
	Project string // a project that replaces image, services, packages, tools, setup and limits
	Image   string
	Env     map[string]*string // nil removes a variable
	Setup   *[]string
	// Services replace the image of a service by name, or add one. Without an image they remove it.
	Services []sandbox.Service
	Limits   sandbox.Limits
}

// Apply returns a spec with the change, except for the project. The error lists all mistakes.
func (c SandboxChange) Apply(s sandbox.Spec) (sandbox.Spec, error) {
	var errs []error
	s.Env, s.ImageEnv = slices.Clone(s.Env), maps.Clone(s.ImageEnv)
	if s.Box != nil {
		box := *s.Box
		box.Env, box.ImageEnv, box.Services = maps.Clone(box.Env), maps.Clone(box.ImageEnv), slices.Clone(box.Services)
		s.Box = &box
	}
	switch {
	case c.Image != "" && s.Runtime == sandbox.RuntimeJail:
		errs = append(errs, errors.New("a jail has this machine's programs, and no image: create a sandbox with --runtime box or container"))
	case c.Image != "":
		s.Image = c.Image
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.Contains(name, "=") {
			errs = append(errs, fmt.Errorf("env: %.80q is not a name of a variable", name))
		}
		before := len(s.Env)
		s.Env = slices.DeleteFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		has := len(s.Env) < before
		all := []map[string]string{s.ImageEnv}
		if s.Box != nil {
			all = append(all, s.Box.Env, s.Box.ImageEnv)
		}
		for _, m := range all {
			_, ok := m[name]
			delete(m, name)
			has = has || ok
		}
		if v := c.Env[name]; v != nil {
			s.Env = append(s.Env, name+"="+*v)
		} else if !has {
			errs = append(errs, fmt.Errorf("env: %.80q is not set", name))
		}
	}
	switch {
	case s.Box == nil && (c.Setup != nil || len(c.Services) > 0):
		errs = append(errs, fmt.Errorf("runtime %s has neither setup commands nor services: create a sandbox with --runtime box", s.Runtime))
	case c.Setup != nil:
		s.Box.Setup, s.Box.SetupAsked = *c.Setup, true
	}
	if s.Box != nil {
		for _, of := range c.Services {
			errs = append(errs, changeService(s.Box, of))
		}
	}
	s.Limits = sandbox.Limits{
		MemoryBytes: cmp.Or(c.Limits.MemoryBytes, s.Limits.MemoryBytes), CPUs: cmp.Or(c.Limits.CPUs, s.Limits.CPUs),
		PIDs: cmp.Or(c.Limits.PIDs, s.Limits.PIDs),
	}
	return s, exiterr.New(workorder.ExitUsage, errors.Join(errs...), "")
}

func changeService(box *sandbox.BoxSpec, of sandbox.Service) error {
	i := slices.IndexFunc(box.Services, func(s sandbox.Service) bool { return s.Name == of.Name })
	switch {
	case of.Image == "" && i < 0:
		return fmt.Errorf("service %.80q does not exist", of.Name)
	case of.Image == "":
		box.Services = slices.Delete(box.Services, i, i+1)
	case i >= 0:
		box.Services[i].Image, box.Services[i].Asked = of.Image, true
	default:
		of.Asked = true
		box.Services = append(box.Services, of)
	}
	return nil
}

// UpdateSandbox recreates a sandbox with another configuration, and keeps the files of its workspace, its branch and its endpoints.
func UpdateSandbox(ctx context.Context, b Sandboxes, name string, c SandboxChange) (u Upped, err error) {
	sb, done, err := b.Get(ctx, name)
	if err != nil {
		return u, err
	}
	defer done()
	s := sb.Spec()
	if c.Project != "" {
		of := sandbox.Spec{Runtime: s.Runtime}
		if err := b.ApplyProject(ctx, &of, c.Project, s.Repo, s.Ref); err != nil {
			return u, err
		}
		s.Project, s.Box, s.Image, s.Limits, s.ImageEnv = of.Project, of.Box, of.Image, of.Limits, of.ImageEnv
		s.Env = slices.Concat(of.Env, s.Env) // the later one counts
	}
	if s, err = c.Apply(s); err != nil {
		return u, err
	}
	again, err := sb.Rebuild(ctx, s)
	if errors.Is(err, sandbox.ErrNoClone) {
		return u, exiterr.New(workorder.ExitUsage, fmt.Errorf("%w whose files could be kept", err),
			"recreate it without its files: sandbox-agent down "+name+", and sandbox-agent up "+name+
				" with the new settings; `sandbox-agent cp` copies files out and in")
	}
	if err != nil {
		return u, SandboxError(err)
	}
	defer again.Close()
	if err := b.Settle(ctx, again); err != nil {
		b.Warn(err.Error())
	}
	u.Spec, u.Runtime = again.Spec(), RuntimeText(again)
	lost := "the files of " + sandbox.CloneDir + " are there; all other files"
	if again.Spec().Worktree == "" && again.Spec().BranchOf() != "" {
		lost = "what is committed is there; files outside of " + sandbox.CloneDir + ", files that git ignores, the clone's own git state"
	}
	u.Notes = []string{"note: " + name + " was recreated: " + lost + " and background commands are gone"}
	return u, nil
}
