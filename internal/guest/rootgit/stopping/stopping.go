// Package stopping tells all packages of root's git whether the box is being stopped.
package stopping

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// State tells whether the box is being stopped. The zero value means that it is not. It is safe for concurrent use.
type State struct{ files atomic.Int64 }

// Hurry announces that the box is being stopped, and the time left for keeping files. It may be called at any time.
func (s *State) Hurry(files time.Duration) { s.files.Store(int64(files)) }

// Now reports whether the box is being stopped.
func (s *State) Now() bool { return s.files.Load() > 0 }

// Short reports whether less time is left than the given limit.
func (s *State) Short(ctx context.Context, most time.Duration) bool {
	d, ok := ctx.Deadline()
	return s.Now() || ok && time.Until(d) < most
}

// ForFiles returns the time that a short landing has for the bundle and the archive.
func (s *State) ForFiles() time.Duration {
	return cmp.Or(time.Duration(s.files.Load()), workorder.BundleGrace)
}
