package remote

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// StopState reports whether the box is being stopped. The zero value means that it is not. It is safe for concurrent use.
type StopState struct{ files atomic.Int64 }

// Announce announces that the box is being stopped, and the time left for keeping files. It may be called at any time.
func (s *StopState) Announce(files time.Duration) { s.files.Store(int64(files)) }

// Stopping reports whether the box is being stopped.
func (s *StopState) Stopping() bool { return s.files.Load() > 0 }

// LessThan reports whether less time is left than the given limit.
func (s *StopState) LessThan(ctx context.Context, most time.Duration) bool {
	d, ok := ctx.Deadline()
	return s.Stopping() || ok && time.Until(d) < most
}

// FileBudget returns the time that a short landing has for the bundle and the archive.
func (s *StopState) FileBudget() time.Duration {
	return cmp.Or(time.Duration(s.files.Load()), workorder.BundleGrace)
}
