package app

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Sandboxes are the use cases of standalone sandboxes.
type Sandboxes struct{ *Env }

// Sandboxes returns the use cases of standalone sandboxes.
func (e *Env) Sandboxes() Sandboxes { return Sandboxes{e} }

// Get finds a standalone sandbox, to be used until done is called.
func (b Sandboxes) Get(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	m, err := b.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	if sb, err = m.Get(ctx, name); err != nil {
		return nil, nil, errors.Join(b.UnknownName(ctx, name, err), m.Close())
	}
	b.Endpoints().Ensure(ctx, name)
	return sb, func() { _, _ = sb.Close(), m.Close() }, nil
}
