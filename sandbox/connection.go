package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// connection is the connection to a sandbox's guest, if any.
type connection struct {
	mu     sync.Mutex    // guards client and stop; its holder must not block
	turn   chan struct{} // held while connecting; made at first use
	client *wireclient.Client
	stop   context.CancelFunc // ends the keep-alive signals
}

func (c *connection) current() *wireclient.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// open returns the connection and dials if there is none. dial may wait for the lock of the sandbox's name, but a holder of that
// lock must not call open.
func (c *connection) open(ctx context.Context, dial func() (*wireclient.Client, error)) (*wireclient.Client, error) {
	c.mu.Lock()
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	turn, now := c.turn, c.client
	c.mu.Unlock()
	if now != nil {
		return now, nil
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if now = c.current(); now != nil { // the previous holder of the turn has connected
		return now, nil
	}
	dialed, err := dial()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = dialed
	return dialed, nil
}

// use calls f with the connection, and again with a new one if the connection was lost before f's request was sent.
func (c *connection) use(ctx context.Context, dial func() (*wireclient.Client, error), f func(*wireclient.Client) error) error {
	now, err := c.open(ctx, dial)
	if err != nil {
		return err
	}
	if err = f(now); !errors.Is(err, wireclient.ErrNotSent) {
		return public(err)
	}
	c.mu.Lock()
	if c.client == now { // unless another caller has reconnected
		_ = now.Close()
		c.client = nil
	}
	c.mu.Unlock()
	if now, err = c.open(ctx, dial); err != nil {
		return err
	}
	return public(f(now))
}

// keepAlive calls signal periodically until drop. The next call makes up for a failed one.
func (c *connection) keepAlive(ctx context.Context, every time.Duration, signal func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.stop = cancel
	c.mu.Unlock()
	go func() {
		for range proc.Ticks(ctx.Done(), every) {
			one, cancel := context.WithTimeout(ctx, every)
			signal(one)
			cancel()
		}
	}()
}

// drop closes the connection and ends the keep-alive signals.
func (c *connection) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	if c.client != nil {
		_ = c.client.Close() // no longer used
		c.client = nil
	}
}
