package code

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// backend returns the runtime of an environment: a jail if one with its limits and network is available, otherwise a
// container. noJail is why it is not a jail.
func (r *launcher) backend(ctx context.Context, e Environment) (kind sandbox.Runtime, noJail string, err error) {
	if e.Backend != sandbox.RuntimeAuto {
		return e.Backend, "", nil
	}
	if e.Image != "" {
		return sandbox.RuntimeContainer, "", nil
	}
	for _, i := range r.m.Runtimes(ctx, sandbox.RuntimeJail) {
		supports := func(set bool, c sandbox.Capability) bool { return !set || slices.Contains(i.Capabilities, c) }
		if i.Healthy && supports(e.MemoryBytes != 0, sandbox.CapMemory) && supports(e.CPUs != 0, sandbox.CapCPUs) &&
			supports(e.PIDs != 0, sandbox.CapPIDs) && (!e.Network || os.Geteuid() != 0) { // a jail of root shares the host's network
			return sandbox.RuntimeJail, "", nil
		}
		noJail = cmp.Or(i.Reason, "no jail with its limits and network")
	}
	if r.o.Image == nil {
		return "", noJail, fmt.Errorf("environment %s: %w: there is no jail here (%s), and it names no image", e.Name,
			sandbox.ErrUnsupported, noJail)
	}
	return sandbox.RuntimeContainer, noJail, nil
}

func limits(e Environment) sandbox.Limits {
	return sandbox.Limits{MemoryBytes: e.MemoryBytes, CPUs: e.CPUs, PIDs: e.PIDs}
}

// spec returns the pool spec of an environment.
func (r *launcher) spec(ctx context.Context, e Environment) (pool.Spec, error) {
	kind, noJail, err := r.backend(ctx, e)
	if err != nil {
		return pool.Spec{}, err
	}
	s := pool.Spec{
		Runtime: kind, Image: e.Image, Root: e.Root,
		Limits: limits(e),
	}
	if e.Network {
		s.Access = pool.AccessNetwork
	}
	if e.Project != "" {
		st, err := os.Stat(e.Project)
		if err == nil && !st.IsDir() {
			err = errors.New("not a directory")
		}
		if err != nil {
			return pool.Spec{}, fmt.Errorf("environment %s is %w: project directory: %w", e.Name, sandbox.ErrSpec, err)
		}
		s.Mounts = []sandbox.Mount{{Source: e.Project, Target: cmp.Or(e.ProjectMount, "/project"), ReadOnly: true}}
	}
	if kind == sandbox.RuntimeContainer && s.Image == "" {
		if r.o.Image == nil {
			return pool.Spec{}, fmt.Errorf("environment %s is %w: a container needs an image", e.Name, sandbox.ErrSpec)
		}
		if s.Image, err = r.o.Image(ctx); err != nil {
			if noJail != "" {
				err = fmt.Errorf("environment %s: no jail (%s) and no container: %w", e.Name, noJail, err)
			}
			return pool.Spec{}, err
		}
	}
	return s, nil
}

// variables returns the environment variables of the code.
func (r *launcher) variables(e Environment) []string {
	env := append([]string{"HOME=" + sandbox.CloneDir}, e.Env...)
	if e.Program != "" { // it has its own home and is asked to show the project
		env = slices.Clone(e.Env)
		if e.Project != "" {
			env = append(env, "PROJECT_DIR="+e.Project)
		}
	}
	for _, name := range e.Inherit {
		if r.o.Getenv == nil {
			break
		}
		if v := r.o.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Place returns a fresh sandbox of an environment. The caller must call done.
func (r *Runner) Place(ctx context.Context, env string) (in sandbox.Executor, e Environment, done func() error, err error) {
	if e, err = r.environment(Request{Env: env}); err != nil {
		return nil, e, nil, err
	}
	if in, e.Backend, done, err = r.place(ctx, e); err != nil {
		return nil, e, nil, err
	}
	e.Env, e.Inherit = r.variables(e), nil
	return in, e, done, nil
}

// place returns a fresh sandbox of an environment. The caller must call done.
func (r *launcher) place(ctx context.Context, e Environment) (in sandbox.Executor, kind sandbox.Runtime, done func() error, err error) {
	if e.Program != "" {
		return r.own(ctx, e)
	}
	s, err := r.spec(ctx, e)
	if err != nil {
		return nil, "", nil, err
	}
	l, err := r.pool.Acquire(ctx, s)
	if err != nil {
		return nil, "", nil, fmt.Errorf("environment %s: %w", e.Name, err)
	}
	// It does not matter why the code ended: a lease in a container ends with its namespaces, and a jail is never
	// reused.
	return l.Executor(), s.Runtime, func() error { return l.Release(context.WithoutCancel(ctx)) }, nil
}

// own returns a sandbox for a program of the host.
func (r *launcher) own(ctx context.Context, e Environment) (in sandbox.Executor, kind sandbox.Runtime, done func() error, err error) {
	if r.o.Hosts == nil {
		return nil, "", nil, fmt.Errorf("environment %s: %w: programs of this machine are not allowed", e.Name, sandbox.ErrUnsupported)
	}
	sb, err := r.o.Hosts.Create(ctx, sandbox.Spec{
		Runtime: sandbox.RuntimeHost, Lifetime: sandbox.LifetimeEphemeral, Network: sandbox.NetworkFull, Limits: limits(e),
	})
	if err != nil {
		return nil, "", nil, fmt.Errorf("environment %s: %w", e.Name, err)
	}
	return sb, cmp.Or(e.Backend, sandbox.RuntimeHost), func() error {
		return sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{})
	}, nil
}
