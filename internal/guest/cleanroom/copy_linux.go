package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

var errTooMuch = errors.New("too much to copy")

// copier copies a tree with owners and modes, within limits for size, files, and examined entries.
type copier struct {
	bytes, files, entries int64
	// before leaves out entries changed at this time or later, and directories with nothing else. Zero copies everything.
	before time.Time
	seed   maphash.Seed
}

type sum struct {
	bytes, files, directories int64
	// names is a sum over the paths: a moved or missing entry changes it. It cannot be computed without the seed.
	names uint64
}

// copy copies to a directory or file that may exist, if empty.
func (c *copier) copy(ctx context.Context, from, to string) (sum, error) {
	return c.each(ctx, from, func(rel string, info fs.FileInfo) error {
		if info.IsDir() {
			return c.dirs(from, to, rel)
		}
		if c.files--; info.Mode().IsRegular() {
			c.bytes -= info.Size()
		}
		if c.files < 0 || c.bytes < 0 {
			return errTooMuch
		}
		if err := c.dirs(from, to, filepath.Dir(rel)); err != nil {
			return err
		}
		return c.entry(filepath.Join(from, rel), filepath.Join(to, rel), info)
	})
}

// each calls take for the entries to copy.
func (c *copier) each(ctx context.Context, from string, take func(rel string, info fs.FileInfo) error) (all sum, err error) {
	err = safeopen.Walk(from, func(path string, info fs.FileInfo, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if c.entries--; c.entries < 0 {
			return fmt.Errorf("%w: more than %d entries", errTooMuch, int64(maxSeen))
		}
		if info.IsDir() && path == from || !c.takes(info) {
			return nil
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if err := take(rel, info); errors.Is(err, fs.ErrNotExist) {
			return nil // it was deleted meanwhile
		} else if err != nil {
			return err
		}
		if info.IsDir() {
			all.directories++ // not summed: a directory's time changes when an entry is added
			return nil
		}
		all.files++
		all.names += maphash.String(c.seed, rel)
		if info.Mode().IsRegular() {
			all.bytes += info.Size()
		}
		return nil
	})
	return all, err
}

// takes reports whether to copy an entry; a directory only for its own sake.
func (c *copier) takes(info fs.FileInfo) bool {
	if !info.Mode().IsRegular() && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (c.before.IsZero() || time.Unix(st.Ctim.Unix()).Before(c.before))
}

// dirs creates a directory below to, with its parents, as they are below from.
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

// entry copies a file or link. The target of a single file may exist, if empty.
func (c *copier) entry(from, to string, info fs.FileInfo) error {
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
		return fmt.Errorf("%s: unknown owner", path)
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
