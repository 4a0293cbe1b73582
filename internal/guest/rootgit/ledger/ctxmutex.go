package ledger

import (
	"context"
	"fmt"
	"sync"
)

// ctxMutex is a mutex whose lock honours a context: a push that hangs may hold it for minutes, and a caller that is told to
// stop meanwhile has seconds. The zero value is free.
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
	return fmt.Errorf("wait for what is being saved: %w", context.Cause(ctx))
}

func (m *ctxMutex) unlock() { <-m.taken }

// Lock is held while the index of ours or the ledger is used and a Keeper may use them, too. It ends with ctx.
func (bk *Book) Lock(ctx context.Context) error { return bk.op.lock(ctx) }

// Unlock ends Lock.
func (bk *Book) Unlock() { bk.op.unlock() }
