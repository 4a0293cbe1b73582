package pool

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// DefaultTimeout ends a command of a lease that names no other.
const DefaultTimeout = 5 * time.Minute

// Room is where the commands of a lease run.
type Room interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Start(ctx context.Context, c sandbox.Command) (*sandbox.Process, error)
	Files() *sandbox.Files
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	Session(ctx context.Context, o sandbox.SessionOptions) (*sandbox.Interpreter, error)
}

// Lease is a sandbox that is lent, until Release or Destroy. Its methods may be called concurrently.
type Lease struct {
	p    *Pool
	slot *slot
	turn turn
	id   string

	mu    sync.Mutex
	over  bool
	dirty bool // what was left may not have ended
}

// ID names the lease.
func (l *Lease) ID() string { return l.id }

// Sandbox is the name of the sandbox that is lent.
func (l *Lease) Sandbox() string { return l.slot.place.Name() }

// Room is where its commands run: after the lease's end it answers nothing.
func (l *Lease) Room() Room { return l.turn }

// Run runs a command in the lease, as sandbox.Sandbox.Run does, in its empty folder /workspace if Dir names no other. Without a Timeout it has DefaultTimeout; sandbox.NoLimit has none. After a
// command that was ended for its time or for want of memory the sandbox is not lent again.
func (l *Lease) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	return l.timed(ctx, c, l.turn.Run)
}

// RunTo is Run with all output, as it comes, instead of a part of it in the Result.
func (l *Lease) RunTo(ctx context.Context, c sandbox.Command, stdout, stderr io.Writer) (sandbox.Result, error) {
	return l.timed(ctx, c, func(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
		p, err := l.turn.Start(ctx, c)
		if err != nil {
			return sandbox.Result{}, err
		}
		return p.Wait(ctx, stdout, stderr)
	})
}

func (l *Lease) timed(ctx context.Context, c sandbox.Command, run func(context.Context, sandbox.Command) (sandbox.Result, error)) (sandbox.Result, error) {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over {
		return sandbox.Result{}, ErrOver
	}
	switch c.Timeout {
	case 0:
		c.Timeout = DefaultTimeout
	case sandbox.NoLimit:
		c.Timeout = 0
	}
	r, err := run(ctx, c)
	if r.TimedOut || r.OutOfMemory || errors.Is(err, sandbox.ErrLost) {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
	return r, err
}

// finish ends the lease once.
func (l *Lease) finish() (clean, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = !l.over
	l.over = true
	return !l.dirty, first
}

// Release ends all that runs in the lease and gives its sandbox back. To release it again, or after Destroy, is not an error. It is timed by itself: ctx only ends the wait.
func (l *Lease) Release(ctx context.Context) error { return l.end(ctx, true) }

// Destroy ends the lease and removes its sandbox. To destroy it again, or after Release, is not an error.
func (l *Lease) Destroy(ctx context.Context) error { return l.end(ctx, false) }

func (l *Lease) end(ctx context.Context, reuse bool) error {
	clean, first := l.finish()
	if !first {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- l.p.giveBack(context.WithoutCancel(ctx), l.slot, l.turn, clean && reuse) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
