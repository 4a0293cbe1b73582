package pool

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// manager creates pooled sandboxes by package sandbox.
type manager struct{ m *sandbox.Manager }

func (m *manager) ImageID(ctx context.Context, image string) (string, error) {
	return m.m.ImageID(ctx, image)
}

func (m *manager) Create(ctx context.Context, s Spec, name string, leases bool) (pooled, error) {
	sp := s.Sandbox()
	sp.Name = name
	if sp.Nested && !leases {
		sp.Nested, sp.User, sp.Dir, sp.CreateDir = false, cmp.Or(s.User, defaultUser), sandbox.CloneDir, true
		sp.Env = append([]string{"HOME=" + sandbox.CloneDir}, s.Env...)
	}
	sb, err := Create(ctx, m.m, sp, s.Limits)
	if err != nil {
		return nil, err
	}
	return &managed{sb}, nil
}

func (m *manager) orphans(ctx context.Context, name string) (all []pooled, err error) {
	there, err := m.m.List(ctx)
	for _, i := range there {
		if !i.Own || i.Spec.Lifetime != sandbox.LifetimeEphemeral || !strings.HasPrefix(i.Name, name) {
			continue
		}
		sb, gerr := m.m.Get(ctx, i.Name)
		switch {
		case gerr == nil:
			all = append(all, &managed{sb})
		case !errors.Is(gerr, sandbox.ErrNotFound): // it has ended meanwhile
			err = errors.Join(err, gerr)
		}
	}
	return all, err
}

// Defaults of a container without nested sandboxes, equal to those of a lease.
const (
	defaultUser = "1000:1000"
)

// Create creates a sandbox. Its limits are defaults except those in asked; a default that the runtime cannot enforce is dropped.
func Create(ctx context.Context, m *sandbox.Manager, s sandbox.Spec, asked sandbox.Limits) (*sandbox.Sandbox, error) {
	sb, err := m.Create(ctx, s)
	e, ok := errors.AsType[*sandbox.UnsupportedError](err)
	if !ok {
		return sb, err
	}
	for _, w := range e.Missing {
		switch {
		case w == sandbox.CapMemory && asked.MemoryBytes == 0:
			s.Limits.MemoryBytes = sandbox.NoLimit
		case w == sandbox.CapCPUs && asked.CPUs == 0:
			s.Limits.CPUs = sandbox.NoLimit
		case w == sandbox.CapPIDs && asked.PIDs == 0:
			s.Limits.PIDs = sandbox.NoLimit
		default:
			return nil, err
		}
	}
	return m.Create(ctx, s)
}

type managed struct{ *sandbox.Sandbox }

func (m *managed) use(ctx context.Context) (use, error) {
	if !m.Spec().Nested {
		return singleUse{m.Sandbox}, nil
	}
	l, err := m.NewNested(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// singleUse leases a sandbox without nested sandboxes as a singleUse, once.
type singleUse struct{ *sandbox.Sandbox }

// errUsed means that a sandbox was used without a nested sandbox, and is never clean again.
var errUsed = errors.New("cannot be reused")

func (singleUse) End(context.Context) error { return errUsed }

func (m *managed) Remove(ctx context.Context) error {
	return m.Sandbox.Remove(ctx, sandbox.RemoveOptions{})
}
