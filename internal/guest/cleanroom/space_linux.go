package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// Space is free disk space; 0 means no limit.
type Space struct{ Disk, Inodes int64 }

// space returns the least free space of the rooms' directory, of Excluded, and of layered places.
func (c *Config) space() (Space, error) {
	var all Space
	for _, dir := range slices.Concat([]string{c.Dir}, c.Excluded, c.Layered) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return all, fmt.Errorf("read the free space of %s: %w", dir, err)
		}
		least := func(to *int64, n int64) {
			if *to == 0 || n < *to {
				*to = max(n, 1) // 0 would mean no limit
			}
		}
		least(&all.Disk, int64(st.Bavail)*int64(st.Bsize))
		if st.Files > 0 { // some file systems have no limit
			least(&all.Inodes, int64(st.Ffree))
		}
	}
	return all, nil
}

// emptyShared removes the agent's users' files in shared memory, which outlive their processes.
func (c *Config) emptyShared(ctx context.Context) error {
	var err error
	for _, m := range own {
		err = errors.Join(err, c.emptyDir(ctx, m.path))
	}
	for _, kind := range []struct {
		name   string
		call   uintptr
		remove func(call uintptr, id int) syscall.Errno
	}{
		{"shm", unix.SYS_SHMCTL, removeSegment}, {"msg", unix.SYS_MSGCTL, removeSegment}, {"sem", unix.SYS_SEMCTL, removeSet},
	} {
		table, rerr := os.ReadFile("/proc/sysvipc/" + kind.name)
		if rerr != nil {
			if !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
			continue
		}
		for _, id := range c.segments(string(table)) {
			if errno := kind.remove(kind.call, id); errno != 0 && errno != unix.EIDRM && errno != unix.EINVAL {
				err = errors.Join(err, fmt.Errorf("remove %s %d: %w", kind.name, id, errno))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("empty shared memory: %w", err)
	}
	return nil
}

func removeSegment(call uintptr, id int) syscall.Errno {
	_, _, errno := unix.Syscall(call, uintptr(id), unix.IPC_RMID, 0)
	return errno
}

func removeSet(call uintptr, id int) syscall.Errno {
	_, _, errno := unix.Syscall6(call, uintptr(id), 0, unix.IPC_RMID, 0, 0, 0)
	return errno
}

// segments returns the ids in a table of /proc/sysvipc that belong to the agent's side.
func (c *Config) segments(table string) (ids []int) {
	id, uid := -1, -1
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		f := strings.Fields(line)
		if i == 0 {
			for at, name := range f {
				switch name {
				case "shmid", "msqid", "semid":
					id = at
				case "uid":
					uid = at
				}
			}
			continue
		}
		if id < 0 || uid < 0 || len(f) <= max(id, uid) {
			continue
		}
		n, err := strconv.Atoi(f[id])
		owner, oerr := strconv.ParseUint(f[uid], 10, 32)
		if err != nil || oerr != nil {
			continue
		}
		if mine, _ := c.IsTaskUser(uint32(owner), 0); mine {
			ids = append(ids, n)
		}
	}
	return ids
}

// rmBatch bounds the names of one call of rm: they take some kilobytes.
const rmBatch = 500

func (c *Config) emptyDir(ctx context.Context, dir string) error {
	var names []string
	flush := func() error {
		if len(names) == 0 {
			return nil
		}
		err := remove(ctx, names...)
		names = names[:0]
		return err
	}
	err := safeopen.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case path == dir:
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			if mine, _ := c.IsTaskUser(st.Uid, st.Gid); mine {
				names = append(names, filepath.Clean(path))
			}
		}
		if len(names) == rmBatch {
			if err := flush(); err != nil {
				return err
			}
		}
		return fs.SkipDir
	})
	return errors.Join(err, flush())
}
