package sandbox

import (
	"context"
	"errors"
	"sync"
)

// Executor runs commands in one sandbox, which the first command creates and Close removes. State lasts from command to
// command: files, packages and background processes, but not a shell's variables and working directory.
type Executor struct {
	m    *Manager
	spec Spec
	mu   sync.Mutex
	sb   *Sandbox
}

// NewExecutor returns an executor for sandboxes of the spec; an empty Lifetime means Session. It contacts nothing.
func NewExecutor(m *Manager, s Spec) *Executor {
	if s.Lifetime == "" {
		s.Lifetime = Session
	}
	return &Executor{m: m, spec: s}
}

// Kind returns the runtime of the commands. If the spec leaves it open, it is Auto until the first command.
func (e *Executor) Kind() Kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb != nil {
		return e.sb.spec.Runtime
	}
	return e.spec.Runtime
}

// Healthy returns an error if commands cannot run.
func (e *Executor) Healthy(ctx context.Context) error {
	_, _, err := e.m.choose(ctx, e.spec)
	return err
}

// Run runs a command to its end, as Sandbox.Run does. It replaces a Session sandbox that is gone by a new one without
// earlier state.
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
		return r, err // the command was not found in the sandbox
	}
	sb.drop() // ends its keep-alive signals
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

// sandbox returns the current sandbox, an existing one if it is named.
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

// Close removes the sandbox of a Session. A named sandbox stays.
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
