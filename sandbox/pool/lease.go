package pool

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// DefaultTimeout is the default timeout of a lease's command.
const DefaultTimeout = 5 * time.Minute

// Lease is the right to use a pooled sandbox until Release or Destroy. Its methods may be called concurrently.
type Lease struct {
	p    *Pool
	slot *slot
	use  use
	id   string

	mu    sync.Mutex
	ended bool
	dirty bool // processes may be left
}

// ID returns the lease's id.
func (l *Lease) ID() string { return l.id }

// Sandbox returns the name of the leased sandbox.
func (l *Lease) Sandbox() string { return l.slot.sandbox.Name() }

// Executor returns access to the sandbox. It fails after the end of the lease.
func (l *Lease) Executor() sandbox.Executor { return l.use }

// Run runs a command in the lease, as sandbox.Sandbox.Run does. Its working directory is the empty /workspace unless
// Dir names another. Its timeout is DefaultTimeout unless the command has one; sandbox.NoLimit means none. A command
// that times out or exceeds the memory limit prevents reuse of the sandbox.
func (l *Lease) Run(ctx context.Context, c sandbox.Command) (sandbox.RunResult, error) {
	return l.timed(ctx, c, l.use.Run)
}

// RunTo is Run with all output written to stdout and stderr as it arrives. The Result has none.
func (l *Lease) RunTo(ctx context.Context, c sandbox.Command, stdout, stderr io.Writer) (sandbox.RunResult, error) {
	return l.timed(ctx, c, func(ctx context.Context, c sandbox.Command) (sandbox.RunResult, error) {
		p, err := l.use.Start(ctx, c)
		if err != nil {
			return sandbox.RunResult{}, err
		}
		return p.Wait(ctx, stdout, stderr)
	})
}

func (l *Lease) timed(
	ctx context.Context, c sandbox.Command, run func(context.Context, sandbox.Command) (sandbox.RunResult, error),
) (sandbox.RunResult, error) {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return sandbox.RunResult{}, ErrReleased
	}
	switch c.Timeout {
	case 0:
		c.Timeout = DefaultTimeout
	case sandbox.NoLimit:
		c.Timeout = 0
	}
	r, err := run(ctx, c)
	if r.TimedOut || r.OutOfMemory || errors.Is(err, sandbox.ErrConnectionLost) {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
	return r, err
}

// finish marks the lease as ended, once.
func (l *Lease) finish() (clean, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = !l.ended
	l.ended = true
	return !l.dirty, first
}

// Release ends all processes of the lease and returns its sandbox to the pool. It is not an error to release it again
// or after Destroy. The release has its own timeout: ctx only ends the wait.
func (l *Lease) Release(ctx context.Context) error { return l.end(ctx, true) }

// Destroy ends the lease and removes its sandbox. It is not an error to destroy it again or after Release.
func (l *Lease) Destroy(ctx context.Context) error { return l.end(ctx, false) }

func (l *Lease) end(ctx context.Context, reuse bool) error {
	clean, first := l.finish()
	if !first {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- l.p.giveBack(context.WithoutCancel(ctx), l.slot, l.use, clean && reuse) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
