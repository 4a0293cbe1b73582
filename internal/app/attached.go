package app

import (
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// attachedDir has a file per sandbox that is shown at a terminal. Each client holds a shared lock on it, which ends with
// the client, however that ends.
const attachedDir = "attached"

func attachedLock(b Sandboxes, name string) (*flock.Flock, error) {
	dir, err := b.StateDir()
	if err != nil {
		return nil, err
	}
	return flock.New(filepath.Join(dir, attachedDir, name)), nil
}

// MarkAttached marks a sandbox as shown at a terminal until done is called. Without the mark only `ps` shows less.
func (b Sandboxes) MarkAttached(name string) (done func()) {
	l, err := attachedLock(b, name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(l.Path()), 0o700)
	}
	if err == nil {
		err = l.RLock()
	}
	if err != nil {
		b.Log().Debug("mark a sandbox as attached", "sandbox", name, "error", err)
		return func() {}
	}
	return func() {
		_ = l.Unlock()
		if last, err := l.TryLock(); err == nil && last {
			_ = os.Remove(l.Path())
			_ = l.Unlock()
		}
	}
}

// Attached reports whether a terminal shows the sandbox.
func (b Sandboxes) Attached(name string) bool {
	l, err := attachedLock(b, name)
	if err != nil {
		return false
	}
	if _, err := os.Stat(l.Path()); err != nil {
		return false
	}
	free, err := l.TryLock()
	if free {
		_ = l.Unlock()
	}
	return err == nil && !free
}
