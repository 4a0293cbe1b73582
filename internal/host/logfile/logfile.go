// Package logfile writes the log of one user in a directory where others may write, too: the file is the user's, no other user
// reads it, and it has a bound.
package logfile

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// File is a log. Several programs may write to it.
type File struct {
	mu   sync.Mutex
	f    *os.File
	most int64
}

// Open opens a log, which is made where it is not there, and emptied when it would have more than most bytes. A file of
// somebody else, a link, and what is no file is refused.
func Open(path string, most int64) (*File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if err := own(f); err != nil {
		return nil, fmt.Errorf("open the log %s: %w", path, err)
	}
	return &File{f: f, most: most}, nil
}

// own makes sure that a file is this user's alone. It closes one that is not.
func own(f *os.File) (err error) {
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it is not this user's file: %w", os.ErrPermission)
	}
	return f.Chmod(0o600) // a process that opened it earlier can read what is written
}

// Write appends a line.
func (l *File) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if st, err := l.f.Stat(); err == nil && st.Size()+int64(len(b)) > l.most {
		if err := l.f.Truncate(0); err != nil {
			return 0, err
		}
	}
	return l.f.Write(b)
}

// Close closes it.
func (l *File) Close() error { return l.f.Close() }
