// Package lockfile provides locks between processes, which are files that the holder may remove.
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

// Lock is a lock that this process holds. The kernel releases it when the process dies.
type Lock struct{ f *flock.Flock }

// Take waits for the lock until ctx ends. The error is fs.ErrNotExist if the file's directory is missing.
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
		return nil, nil // the holder removed it: the next try creates it
	}
	return nil, err
}

// Release releases the lock.
func (l *Lock) Release() { _ = l.f.Unlock() }

// Remove removes the file and releases the lock. A waiting process creates the file again.
func (l *Lock) Remove() {
	_ = os.Remove(l.f.Path()) // a remaining file is an unheld lock
	l.Release()
}
