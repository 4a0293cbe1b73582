package sandbox

import (
	"context"
	"errors"
	"sync"
)

// Executor runs commands in one sandbox, which it makes at the first command and keeps until Close. State stays from command to command: files, packages and what runs in
// the background; not a shell's variables and folder, since each command is a process of its own.
type Executor struct {
	m    *Manager
	spec Spec
	mu   sync.Mutex
	sb   *Sandbox
}

// NewExecutor returns an executor of sandboxes of the spec; one without a lifetime is a Session. It contacts nothing.
func NewExecutor(m *Manager, s Spec) *Executor {
	if s.Lifetime == "" {
		s.Lifetime = Session
	}
	return &Executor{m: m, spec: s}
}

// Kind is what isolates the commands; Auto before the first of a spec that leaves it open.
func (e *Executor) Kind() Kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb != nil {
		return e.sb.spec.Runtime
	}
	return e.spec.Runtime
}

// Healthy reports what keeps commands from running; nil if nothing does.
func (e *Executor) Healthy(ctx context.Context) error {
	_, _, err := e.m.choose(ctx, e.spec)
	return err
}

// Run runs a command to its end, as Sandbox.Run does. Where the sandbox of a Session is gone, it is made anew, with nothing of before in it.
func (e *Executor) Run(ctx context.Context, c Command) (Result, error) {
	sb, err := e.sandbox(ctx)
	if err != nil {
		return Result{}, err
	}
	r, err := sb.Run(ctx, c)
	if !errors.Is(err, ErrNotFound) || e.spec.Lifetime != Session {
		return r, err
	}
	if _, gone := e.m.Get(ctx, sb.Name()); !errors.Is(gone, ErrNotFound) {
		return r, err // what was not found is in the sandbox
	}
	sb.drop() // with its signs of life
	e.mu.Lock()
	if e.sb == sb {
		e.sb = nil
	}
	e.mu.Unlock()
	if sb, err = e.sandbox(ctx); err != nil {
		return Result{}, err
	}
	return sb.Run(ctx, c)
}

// sandbox is the one of now; a named one that is there already is used.
func (e *Executor) sandbox(ctx context.Context) (*Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb != nil {
		return e.sb, nil
	}
	sb, err := e.m.Create(ctx, e.spec)
	if errors.Is(err, ErrExists) && e.spec.Lifetime == Named {
		sb, err = e.m.Get(ctx, e.spec.Name)
	}
	if err != nil {
		return nil, err
	}
	e.sb = sb
	return sb, nil
}

// Close removes the sandbox of a Session, and lets a named one be.
func (e *Executor) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb == nil {
		return nil
	}
	err := e.sb.Close(ctx)
	e.sb = nil
	return err
}
