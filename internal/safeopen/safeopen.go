// Package safeopen opens files in directories that an untrusted user can write to. Such a file may be a link out of the
// directory, a hard link to a file that the user cannot read, a pipe that blocks its reader, or it may have been replaced
// a moment ago.
package safeopen

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrUnsafe is of a name that is no file of the user's own.
var ErrUnsafe = errors.New("it is a link, not a regular file, or of another user")

// Open opens a file of the directory root: a regular one that belongs to uid and has this name only. It waits for nothing. A nil
// uid takes any owner's.
func Open(root *os.Root, name string, uid *uint32) (*os.File, fs.FileInfo, error) {
	entry, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		return nil, nil, ErrUnsafe
	}
	fi, err := f.Stat()
	if err == nil && !own(entry, fi, uid) {
		err = ErrUnsafe
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

func own(entry, opened fs.FileInfo, uid *uint32) bool {
	st, ok := opened.Sys().(*syscall.Stat_t)
	return ok && opened.Mode().IsRegular() && os.SameFile(entry, opened) && st.Nlink == 1 && (uid == nil || st.Uid == *uid)
}

// Read is the content of a file that Open takes, of at most so many bytes; one that has more is an error.
func Read(root *os.Root, name string, uid *uint32, most int64) ([]byte, error) {
	f, _, err := Open(root, name, uid)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
