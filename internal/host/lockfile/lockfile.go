// Package lockfile is a lock between processes that is a file, and whose holder may remove the file.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poll is the pause between two tries.
const poll = 10 * time.Millisecond

// Lock is a lock that this process holds. The kernel releases that of a process that dies.
type Lock struct{ f *os.File }

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
func try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, nil
	}
	var mine, there fs.FileInfo
	if err == nil {
		mine, err = f.Stat()
	}
	if err == nil {
		there, err = os.Stat(path)
	}
	if err == nil && os.SameFile(mine, there) {
		return f, nil
	}
	_ = f.Close()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // its holder removed it: the next try makes another
	}
	return nil, err
}

// Release lets others have the lock.
func (l *Lock) Release() { _ = l.f.Close() }

// Remove removes the file and releases the lock: who waits for it makes another one.
func (l *Lock) Remove() {
	_ = os.Remove(l.f.Name()) // one that stays is a lock that nobody holds
	l.Release()
}
