// Package lockfile is a lock between processes that is a file, and whose holder may remove the file.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// poll is the pause between two tries.
const poll = 10 * time.Millisecond

// Lock is a lock that this process holds. The kernel releases that of a process that dies.
type Lock struct{ f *flock.Flock }

// Take takes the lock, and waits for its holder until ctx ends. The error is fs.ErrNotExist where the file's folder is not there.
func Take(ctx context.Context, path string) (*Lock, error) {
	for {
		f, err := try(path)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return &Lock{f}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the command that holds %s: %w", path, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// try returns the locked file, or nil while another process has it.
func try(path string) (*flock.Flock, error) {
	f := flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	locked, err := f.TryLock()
	if err != nil || !locked {
		return nil, err
	}
	own, err := f.Stat()
	var current fs.FileInfo
	if err == nil {
		current, err = os.Stat(path)
	}
	if err == nil && os.SameFile(own, current) {
		return f, nil
	}
	_ = f.Unlock()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // its holder removed it: the next try creates another
	}
	return nil, err
}

// Release lets others have the lock.
func (l *Lock) Release() { _ = l.f.Unlock() }

// Remove removes the file and releases the lock: who waits for it creates another one.
func (l *Lock) Remove() {
	_ = os.Remove(l.f.Path()) // a file that stays is a lock without a holder
	l.Release()
}
