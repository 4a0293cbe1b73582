// Package atomicfile replaces files in one step, so that a reader sees the old content or the new one. It does not sync: after a loss of
// power a file may be empty. Where that matters, use renameio, which costs a wait for the disk.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Part returns the file that holds the new content of path until it is complete. Its name begins with a dot, so that a reader of the
// directory can skip what a killed writer left.
func Part(path string) string {
	dir, name := filepath.Split(path)
	return dir + "." + name + ".new"
}

// Write replaces the file at path. A file may have one writer at a time. After an error, the old file is as it was, and Part(path) may
// stay until the next call.
func Write(path string, b []byte, mode fs.FileMode) error {
	part := Part(path)
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}
