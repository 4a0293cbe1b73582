package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Names of a pool: a lock in the state directory, and the beginning of the names of its sandboxes. Of those of a state
// directory, the holder of the lock has all.
const (
	poolLock = "pool.lock"
	poolName = "pool-"
)

// WithPool runs serve with a pool, the only one of this state directory, and removes the pool's sandboxes afterwards.
// image is that of leases without one; if it is empty, WithPool uses the small image.
func (e *Env) WithPool(ctx context.Context, o pool.Options, image string, serve func(dir string, p *pool.Pool) error) error {
	dir, err := e.StateDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	const soon = 100 * time.Millisecond
	once, cancel := context.WithTimeoutCause(ctx, soon, errors.New("another pool server uses this state directory"))
	defer cancel()
	lock, err := lockfile.Take(once, filepath.Join(dir, poolLock))
	if err != nil {
		return exiterr.New(workorder.ExitGeneral, err,
			"`sandbox-agent pool stats` asks that one; another SANDBOX_AGENT_STATE_DIR has another pool")
	}
	defer lock.Release()
	m, err := e.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	if image == "" {
		if image, err = e.SmallImage(ctx); err != nil {
			return err
		}
	}
	o.Image = func(context.Context) (string, error) { return image, nil }
	o.Log, o.Name = e.Log(), poolName
	p := pool.New(m, o)
	if err := p.RemoveOrphans(ctx); err != nil {
		o.Log.Warn("sandboxes of a killed pool are left", "error", err)
	}
	served := serve(dir, p)
	if err := p.Close(context.WithoutCancel(ctx)); err != nil {
		return exiterr.New(workorder.ExitGeneral, errors.Join(served, err),
			"what is left ends by itself within a minute; `sandbox-agent gc` removes what cannot")
	}
	return SandboxError(served)
}
