//go:build unix

package safeopen

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how many entries of a directory are read at once: a directory of millions takes no more memory than a small one.
	chunk = 64
	// maxDepth bounds how deep directories are followed, each of which is held open: no tool makes more than some fifty.
	maxDepth = 1000
)

// ErrTooDeep is of a directory that lies deeper than Walk goes.
var ErrTooDeep = fmt.Errorf("it lies deeper than %d directories", maxDepth)

// Walk visits a directory, or a single file, and what is below it as filepath.WalkDir does, but in no order, in bounded
// memory whatever the directories hold, and without following a directory that becomes a link meanwhile. Entries that go
// meanwhile are passed over. An entry that cannot be read is visited with the error; a directory that lies too deep is
// with ErrTooDeep. fs.SkipDir passes over the one entry.
func Walk(top string, visit func(path string, info fs.FileInfo, err error) error) error {
	info, err := os.Lstat(top)
	if err != nil {
		return pass(visit(top, nil, err))
	}
	if err := visit(top, info, nil); err != nil || !info.IsDir() {
		return pass(err)
	}
	fd, err := unix.Open(top, dirFlags, 0)
	return pass(walk(fd, err, top, info, 0, visit))
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

func pass(err error) error {
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

// walk visits what is in the directory that fd has open, or could not be opened.
func walk(fd int, oerr error, path string, dir fs.FileInfo, depth int, visit func(string, fs.FileInfo, error) error) error {
	if errors.Is(oerr, unix.ENOENT) {
		return nil
	}
	if oerr != nil {
		return visit(path, dir, &fs.PathError{Op: "open", Path: path, Err: oerr})
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for {
		entries, err := f.ReadDir(chunk)
		for _, e := range entries {
			if err := one(fd, filepath.Join(path, e.Name()), e, depth, visit); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return visit(path, dir, err)
		}
	}
}

func one(parent int, path string, e fs.DirEntry, depth int, visit func(string, fs.FileInfo, error) error) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pass(visit(path, nil, err))
	}
	if err := visit(path, info, nil); err != nil || !info.IsDir() {
		return pass(err)
	}
	if depth >= maxDepth {
		return pass(visit(path, info, ErrTooDeep))
	}
	fd, err := unix.Openat(parent, e.Name(), dirFlags, 0)
	return pass(walk(fd, err, path, info, depth+1, visit))
}
