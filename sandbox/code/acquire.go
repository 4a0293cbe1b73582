package code

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// runtime returns the runtime of a preset: a jail if one with its limits and network is available, otherwise a
// container. noJail is why it is not a jail.
func (r *launcher) runtime(ctx context.Context, p Preset) (kind sandbox.Runtime, noJail string, err error) {
	if p.Runtime != sandbox.RuntimeAuto {
		return p.Runtime, "", nil
	}
	if p.Image != "" {
		return sandbox.RuntimeContainer, "", nil
	}
	for _, i := range r.m.Runtimes(ctx, sandbox.RuntimeJail) {
		supports := func(set bool, c sandbox.Capability) bool { return !set || slices.Contains(i.Capabilities, c) }
		if i.Healthy && supports(p.MemoryBytes != 0, sandbox.CapMemory) && supports(p.CPUs != 0, sandbox.CapCPUs) &&
			supports(p.PIDs != 0, sandbox.CapPIDs) && supports(len(p.Allow) > 0, sandbox.CapNetworkProxy) &&
			(!p.Network || len(p.Allow) > 0 || os.Geteuid() != 0) { // a jail of root shares the host's network
			return sandbox.RuntimeJail, "", nil
		}
		noJail = cmp.Or(i.Reason, "no jail with its limits and network")
		if on, err := r.fallsBack(ctx, i); err != nil || on {
			return sandbox.RuntimeHost, noJail, err
		}
	}
	if r.o.Image == nil {
		return "", noJail, fmt.Errorf("preset %s: %w: there is no jail here (%s), and it names no image", p.Name,
			sandbox.ErrUnsupported, noJail)
	}
	return sandbox.RuntimeContainer, noJail, nil
}

// fallsBack reports whether code runs on the host because neither jails, whose state is given, nor containers are available.
func (r *launcher) fallsBack(ctx context.Context, jail sandbox.RuntimeInfo) (bool, error) {
	if r.o.Fallback == nil || r.o.HostManager == nil || jail.Healthy {
		return false, nil
	}
	container := r.m.Runtimes(ctx, sandbox.RuntimeContainer)[0]
	if container.Healthy || ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return r.o.Fallback("jail: " + jail.Reason + "; container: " + container.Reason)
}

// creator returns the manager that creates sandboxes of a spec.
func (r *launcher) creator(s sandbox.Spec) *sandbox.Manager {
	if s.Runtime == sandbox.RuntimeHost {
		return r.o.HostManager
	}
	return r.m
}

func limits(p Preset) sandbox.Limits {
	return sandbox.Limits{MemoryBytes: p.MemoryBytes, CPUs: p.CPUs, PIDs: p.PIDs}
}

func (r *launcher) spec(ctx context.Context, p Preset) (pool.Spec, error) {
	kind, noJail, err := r.runtime(ctx, p)
	if err != nil {
		return pool.Spec{}, err
	}
	s := pool.Spec{
		Runtime: kind, Image: p.Image, Root: p.Root,
		Limits: limits(p), Allow: p.Allow,
	}
	if p.Network || kind == sandbox.RuntimeHost {
		s.Access = pool.AccessNetwork
	}
	if p.Project != "" {
		s.Mounts = []sandbox.Mount{{Source: p.Project, Target: cmp.Or(p.ProjectMount, "/project"), ReadOnly: true}}
	}
	if kind == sandbox.RuntimeContainer && s.Image == "" {
		if r.o.Image == nil {
			return pool.Spec{}, fmt.Errorf("preset %s: %w: a container needs an image", p.Name, sandbox.ErrInvalidSpec)
		}
		if s.Image, err = r.o.Image(ctx); err != nil {
			if noJail != "" {
				err = fmt.Errorf("preset %s: no jail (%s) and no container: %w", p.Name, noJail, err)
			}
			return pool.Spec{}, err
		}
	}
	return s, nil
}

// variables returns the environment variables of the code.
func (r *launcher) variables(p Preset) []string {
	env := append([]string{"HOME=" + sandbox.CloneDir}, p.Env...)
	if p.Runtime == sandbox.RuntimeHost {
		env = slices.Clone(p.Env) // the user's own home
	}
	if p.Program != "" { // it has its own home and is asked to show the project
		env = slices.Clone(p.Env)
		if p.Project != "" {
			env = append(env, "PROJECT_DIR="+p.Project)
		}
	}
	for _, name := range p.Inherit {
		if r.o.Getenv == nil {
			break
		}
		if v := r.o.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Acquire returns a fresh sandbox of a preset. The caller must call done.
func (r *Runner) Acquire(ctx context.Context, env string) (in sandbox.Executor, p Preset, done func() error, err error) {
	if p, err = r.preset(Request{Preset: env}); err != nil {
		return nil, p, nil, err
	}
	if in, p.Runtime, done, err = r.acquire(ctx, p); err != nil {
		return nil, p, nil, err
	}
	p.Env, p.Inherit = r.variables(p), nil
	return in, p, done, nil
}

// acquire returns a fresh sandbox of a preset. The caller must call done.
func (r *launcher) acquire(ctx context.Context, p Preset) (in sandbox.Executor, kind sandbox.Runtime, done func() error, err error) {
	if p.Program != "" {
		return r.onHost(ctx, p, sandbox.Spec{
			Runtime: sandbox.RuntimeHost, Lifetime: sandbox.LifetimeEphemeral, Network: sandbox.NetworkFull, Limits: limits(p),
		})
	}
	s, err := r.spec(ctx, p)
	if err != nil {
		return nil, "", nil, err
	}
	if s.Runtime == sandbox.RuntimeHost {
		return r.onHost(ctx, p, s.Sandbox())
	}
	l, err := r.pool.Acquire(ctx, s)
	if err != nil {
		return nil, "", nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	// It does not matter why the code ended: a lease in a container ends with its namespaces, and a jail is never reused.
	return l.Executor(), s.Runtime, func() error { return l.Release(context.WithoutCancel(ctx)) }, nil
}

func (r *launcher) onHost(ctx context.Context, p Preset, s sandbox.Spec) (in sandbox.Executor, kind sandbox.Runtime, done func() error,
	err error,
) {
	if r.o.HostManager == nil {
		return nil, "", nil, fmt.Errorf("preset %s: %w: programs of this machine are not allowed", p.Name, sandbox.ErrUnsupported)
	}
	sb, err := pool.Create(ctx, r.o.HostManager, s, limits(p))
	if err != nil {
		return nil, "", nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	return sb, cmp.Or(p.Runtime, sandbox.RuntimeHost), func() error {
		return sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{})
	}, nil
}
