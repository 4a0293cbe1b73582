package remote

import (
	"context"
	"fmt"
	"sync"
)

// ctxMutex is a mutex whose Lock honours a context: a hanging push may hold it for minutes, and a stopped
// caller has only seconds. The zero value is free.
type ctxMutex struct {
	once  sync.Once
	taken chan struct{}
}

func (m *ctxMutex) lock(ctx context.Context) error {
	m.once.Do(func() { m.taken = make(chan struct{}, 1) })
	if ctx.Err() == nil {
		select {
		case m.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("wait for the running save: %w", context.Cause(ctx))
}

func (m *ctxMutex) unlock() { <-m.taken }

// Lock protects the index and the ledger against a concurrent AutoSaver. It fails when ctx ends.
func (l *Ledger) Lock(ctx context.Context) error { return l.op.lock(ctx) }

// Unlock releases Lock.
func (l *Ledger) Unlock() { l.op.unlock() }
