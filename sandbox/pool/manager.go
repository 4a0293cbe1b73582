package pool

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// manager makes places of package sandbox.
type manager struct{ m *sandbox.Manager }

func (m *manager) Create(ctx context.Context, s sandbox.Spec) (place, error) {
	sb, err := m.m.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return &made{sb}, nil
}

// made is a sandbox of this program's.
type made struct{ *sandbox.Sandbox }

func (m *made) Kind() sandbox.Kind { return m.Spec().Runtime }

func (m *made) Lease(ctx context.Context) (turn, error) {
	if !m.Spec().Leases {
		return whole{m.Sandbox}, nil
	}
	l, err := m.Sandbox.Lease(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// whole is the one turn of a sandbox that makes no leases.
type whole struct{ *sandbox.Sandbox }

// errUsed means that a sandbox is not clean, as it always is after its one turn.
var errUsed = errors.New("it is lent once")

func (whole) End(context.Context) error { return errUsed }
