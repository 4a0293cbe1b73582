package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// spot is a folder or file that the agent's side can write to.
type spot struct {
	path     string
	dir      bool
	mode     fs.FileMode
	uid, gid uint32
}

// scan finds the topmost of them on the root file system. What lies below one is part of it.
func (c *Config) scan(ctx context.Context) ([]spot, error) {
	top, err := os.Lstat(c.Root)
	if err != nil {
		return nil, fmt.Errorf("look for what the agent can write to: %w", err)
	}
	device := top.Sys().(*syscall.Stat_t).Dev
	var found []spot
	err = filepath.WalkDir(c.Root, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var info fs.FileInfo
		if err == nil {
			info, err = e.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went meanwhile
		case err != nil:
			return err
		case path == c.Dir:
			return fs.SkipDir
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no owner is known", path)
		}
		if st.Dev != device {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !c.writable(info.Mode(), st) {
			return nil
		}
		found = append(found, spot{path: path, dir: e.IsDir(), mode: info.Mode(), uid: st.Uid, gid: st.Gid})
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for what the agent can write to: %w", err)
	}
	return found, nil
}

// writable is the kernel's rule, and ownership, which is the right to change the mode. Links have no content of their own, a device is
// the kernel's, and a socket or pipe is whoever's listens, of whom none is left.
func (c *Config) writable(mode fs.FileMode, st *syscall.Stat_t) bool {
	if mode&(fs.ModeSymlink|fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return false
	}
	user, group := c.Mine(st.Uid, st.Gid)
	return user || mode.Perm()&0o002 != 0 || group && mode.Perm()&0o020 != 0
}
