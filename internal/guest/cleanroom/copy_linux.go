package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// errTooMuch is of a tree that is larger than what may be copied.
var errTooMuch = errors.New("there is too much to copy")

// copier copies trees with owners and modes, up to a size and number of files in all.
type copier struct {
	bytes, files int64
	// before leaves out what changed at this time or later, and folders that hold nothing else. Zero: everything is copied.
	before time.Time
}

func (c *copier) copy(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if c.before.IsZero() {
				return c.dirs(from, to, rel)
			}
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !c.takes(info) {
			return err
		}
		if err := c.dirs(from, to, filepath.Dir(rel)); err != nil {
			return err
		}
		return c.entry(path, filepath.Join(to, rel), info)
	})
}

// takes reports whether something that is no folder is to be copied.
func (c *copier) takes(info fs.FileInfo) bool {
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (c.before.IsZero() || time.Unix(st.Ctim.Unix()).Before(c.before))
}

// dirs makes a folder below to, with its parents, as they are below from.
func (c *copier) dirs(from, to, rel string) error {
	at := filepath.Join(to, rel)
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	if rel != "." {
		if err := c.dirs(from, to, filepath.Dir(rel)); err != nil {
			return err
		}
	}
	info, err := os.Lstat(filepath.Join(from, rel))
	if err != nil {
		return err
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	return like(at, info)
}

// entry copies a file or link. A single file that is copied may be there already, empty.
func (c *copier) entry(from, to string, info fs.FileInfo) error {
	c.files--
	if info.Mode().IsRegular() {
		c.bytes -= info.Size()
	}
	if c.files < 0 || c.bytes < 0 {
		return errTooMuch
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err == nil {
			err = os.Symlink(target, to)
		}
		if err != nil {
			return err
		}
		return like(to, info)
	}
	if err := copyFile(from, to); err != nil {
		return err
	}
	return errors.Join(like(to, info), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// like gives an entry the owner and mode of another.
func like(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner is known", path)
	}
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	return os.Chmod(path, perm(info.Mode()))
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(r)
	return errors.Join(err, w.Close())
}
