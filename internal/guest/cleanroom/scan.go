package cleanroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// writablePath is a directory or file that the agent's side can write to.
type writablePath struct {
	path     string
	dir      bool
	mode     fs.FileMode
	uid, gid uint32
}

// scan finds the topmost writable spots on all mounts. A spot includes everything below it.
func (c *Config) scan(ctx context.Context) ([]writablePath, error) { return c.look(ctx, shared) }

// look is scan without spots that get a fresh one anyway.
func (c *Config) look(ctx context.Context, without func(path string) bool) ([]writablePath, error) {
	var found []writablePath
	var device uint64
	err := safeopen.Walk(c.Root, func(path string, info fs.FileInfo, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist) && path != c.Root:
			return nil // it was deleted meanwhile
		case err != nil:
			return err
		case path == c.Dir, slices.Contains(c.Excluded, path), without != nil && without(path):
			return fs.SkipDir
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: unknown owner", path)
		}
		if path == c.Root {
			device = st.Dev
		}
		if st.Dev != device && info.IsDir() {
			switch kernels, err := interfaceOfKernel(path); {
			case err != nil:
				return err
			case kernels:
				return fs.SkipDir
			}
		}
		if c.writable(info.Mode(), st) {
			found = append(found, writablePath{path: path, dir: info.IsDir(), mode: info.Mode(), uid: st.Uid, gid: st.Gid})
			return fs.SkipDir
		}
		if info.IsDir() && !c.reachable(info.Mode(), st) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the files that the agent can write: %w", err)
	}
	return found, nil
}

// writable applies the kernel's rule, and ownership, which allows changing the mode. Links have no content; devices,
// and sockets and pipes of killed listeners, do not count.
func (c *Config) writable(mode fs.FileMode, st *syscall.Stat_t) bool {
	if mode&(fs.ModeSymlink|fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return false
	}
	user, group := c.IsTaskUser(st.Uid, st.Gid)
	return user || mode.Perm()&0o002 != 0 || group && mode.Perm()&0o020 != 0
}

// reachable applies the kernel's rule for entering another user's directory.
func (c *Config) reachable(mode fs.FileMode, st *syscall.Stat_t) bool {
	_, group := c.IsTaskUser(st.Uid, st.Gid)
	return mode.Perm()&0o001 != 0 || group && mode.Perm()&0o010 != 0
}

// maxWritten bounds the entries that Written examines.
const maxWritten = 200_000

// Written describes the entries of the task's users outside of Task and Layered, by path, without sockets.
func (c *Config) Written(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("it took longer than %s", scanTime))
	defer cancel()
	spots, err := c.look(ctx, nil)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, s := range spots {
		if s.path == c.Task || slices.Contains(c.Layered, s.path) {
			continue
		}
		err := safeopen.Walk(s.path, func(path string, info fs.FileInfo, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err = cmp.Or(err, context.Cause(ctx)); err != nil {
				return err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode()&fs.ModeSocket == 0 {
				if mine, _ := c.IsTaskUser(st.Uid, st.Gid); mine {
					all[path] = described(info, st)
				}
			}
			if len(all) > maxWritten {
				return fmt.Errorf("more than %d files", maxWritten)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", s.path, err)
		}
	}
	return all, nil
}

// described leaves out a directory's times, which its entries change.
func described(info fs.FileInfo, st *syscall.Stat_t) string {
	if info.IsDir() {
		return info.Mode().String()
	}
	return fmt.Sprint(info.Mode(), info.Size(), st.Ino, st.Mtim, st.Ctim)
}
