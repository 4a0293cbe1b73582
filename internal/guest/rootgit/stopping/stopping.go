// Package stopping says to all rooms of root's git whether the box is being stopped.
package stopping

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// State says whether the box is being stopped. The zero value is: it is not. It is safe for concurrent use.
type State struct{ files atomic.Int64 }

// Hurry says that the box is being stopped, and how long keeping files may take then. It may be called at any time.
func (s *State) Hurry(files time.Duration) { s.files.Store(int64(files)) }

// Now reports whether the box is being stopped.
func (s *State) Now() bool { return s.files.Load() > 0 }

// Short reports whether there is less than the time that something takes at most.
func (s *State) Short(ctx context.Context, most time.Duration) bool {
	d, ok := ctx.Deadline()
	return s.Now() || ok && time.Until(d) < most
}

// ForFiles is what a landing that is short of time has for the bundle and the archive.
func (s *State) ForFiles() time.Duration {
	return cmp.Or(time.Duration(s.files.Load()), workorder.BundleGrace)
}
