// Package statedir finds the state directory, writes its files atomically and durably, and identifies processes whose ids may be reused.
package statedir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// DefaultDir returns the state directory that the environment names.
func DefaultDir(getenv func(string) string) (string, error) {
	if d := getenv("SANDBOX_AGENT_STATE_DIR"); d != "" {
		return filepath.Abs(d)
	}
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "sandbox-agent"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("find state directory: HOME is not set: set SANDBOX_AGENT_STATE_DIR")
	}
	return filepath.Join(home, ".local", "state", "sandbox-agent"), nil
}

// ReadFile reads a file that WriteFile wrote: a link in its place is an error.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile replaces a file atomically and durably.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	err := renameio.WriteFile(path, b, mode, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path)) // renameio does not
}

// CreateFile creates a file atomically and durably. It does not change an existing file, and returns fs.ErrExist.
func CreateFile(path string, b []byte, mode fs.FileMode) error {
	part := path + "." + rand.Text()
	if err := WriteFile(part, b, mode); err != nil {
		return err
	}
	err := os.Link(part, path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		// A file system without links: if two processes do this at once, the last one wins.
		if _, serr := os.Lstat(path); errors.Is(serr, fs.ErrNotExist) {
			err = os.Rename(part, path)
		}
	}
	if rerr := os.Remove(part); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// SyncDir makes changes of a directory's entries survive a crash of the machine.
func SyncDir(dir string) error { return syncDir(dir) }

// syncDir is a variable for tests.
var syncDir = func(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems do not support the call.
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
