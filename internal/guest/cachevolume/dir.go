// Package cachevolume manages a directory of the volume that all boxes of an engine share.
//
//	lock        exclusive while the shared part or the list of runs is changed
//	runs/<id>/  of a live box: its lock is held for the box's life, so that a killed box holds none
//	trash/      about to be deleted
//
// Only root may enter the volume: files in it belong to the user that the agent runs as.
package cachevolume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

const (
	// lockTimeout bounds the wait for another box that changes the directory; then the box works without it.
	lockTimeout = 5 * time.Second
	lockPause   = 5 * time.Millisecond
)

// Dir is one box's access to the directory. It is not safe for concurrent use.
type Dir struct {
	Base string // path of the directory
	ID   string // id of the run, unique among the boxes of the engine
	// Grace is how long a dead box's directory stays after the detection: another program of the box may continue to use it.
	Grace time.Duration
	Log   *slog.Logger

	runLock *flock.Flock // locked for life
}

// Open creates the directory with the given subdirectories, if they are missing.
func (f *Dir) Open(subdirs ...string) error {
	for _, d := range append([]string{"runs", "trash"}, subdirs...) {
		if err := os.MkdirAll(f.Path(d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Path returns a path below the directory.
func (f *Dir) Path(p ...string) string { return filepath.Join(append([]string{f.Base}, p...)...) }

// Run returns the path of this box's own directory.
func (f *Dir) Run() string { return f.Path("runs", f.ID) }

// Register removes the directories of dead boxes, creates this box's own, and reports whether another box is alive. The
// caller holds the lock exclusively.
func (f *Dir) Register() (alive bool, err error) {
	if alive, err = f.Reap(); err != nil {
		return alive, err
	}
	if err := os.Mkdir(f.Run(), 0o700); err != nil {
		return alive, err
	}
	// The directory is locked before other boxes see it: both happen under the lock.
	f.runLock, err = tryLock(filepath.Join(f.Run(), "lock"))
	return alive, err
}

// Reap moves the directories of dead boxes to the trash and reports whether another box is alive. The caller holds the
// exclusive lock.
func (f *Dir) Reap() (alive bool, err error) {
	live, err := f.each(func(dir string) error { return f.Discard(dir) })
	return len(live) > 0, err
}

// Dead returns the directories of dead boxes. The caller holds the lock.
func (f *Dir) Dead() (dirs []string, err error) {
	_, err = f.each(func(dir string) error {
		dirs = append(dirs, dir)
		return nil
	})
	return dirs, err
}

// Live returns the names of the live boxes' directories, including this box's. The caller holds the lock.
func (f *Dir) Live() ([]string, error) { return f.each(func(string) error { return nil }) }

// each calls dead with each dead box's directory, whose lock it holds, and returns the names of the others.
func (f *Dir) each(dead func(dir string) error) (live []string, err error) {
	runs, err := os.ReadDir(f.Path("runs"))
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		dir := f.Path("runs", r.Name())
		l, err := tryLock(filepath.Join(dir, "lock"))
		if errors.Is(err, unix.EWOULDBLOCK) {
			live = append(live, r.Name())
			continue
		}
		if err == nil {
			if f.over(dir) {
				err = dead(dir)
			}
			err = errors.Join(err, l.Unlock())
		}
		if err != nil {
			return live, err
		}
	}
	return live, nil
}

// over reports whether a dead box's directory may be removed: its death was detected longer than the grace period ago.
func (f *Dir) over(dir string) bool {
	if f.Grace == 0 {
		return true
	}
	seen := filepath.Join(dir, seenFile)
	fi, err := os.Lstat(seen)
	if err != nil {
		if err := os.WriteFile(seen, nil, 0o600); err != nil {
			f.Log.Warn("cache: mark a sandbox as dead", "error", err)
		}
		return false
	}
	return time.Since(fi.ModTime()) > f.Grace
}

// seenFile marks a run's directory once another box has detected its death.
const seenFile = "seen-dead"

// Hold locks a run's directory until the calling process ends, which continues the work of a dead program of the box.
func Hold(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, "lock"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	return err
}

// Leave discards this box's own directory, which must no longer be in use. If it is not called, the next box does it.
func (f *Dir) Leave() error {
	if f.runLock == nil {
		return nil
	}
	return errors.Join(f.Discard(f.Run()), f.Abandon())
}

// Abandon releases this box's own directory as its death would.
func (f *Dir) Abandon() error {
	if f.runLock == nil {
		return nil
	}
	// Unlock unlocks before it closes: a child that is being started inherits the file for a moment, and would keep the lock.
	err := f.runLock.Unlock()
	f.runLock = nil
	return err
}

// Discard moves a file or directory to the trash atomically.
func (f *Dir) Discard(path string) error {
	return os.Rename(path, f.Path("trash", filepath.Base(path)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36)))
}

// Trash opens the trash; EmptyTrash works on it even if the directory is no longer reachable.
func (f *Dir) Trash() (*os.Root, error) { return os.OpenRoot(f.Path("trash")) }

// EmptyTrash deletes everything in the trash, and closes it.
func (f *Dir) EmptyTrash(trash *os.Root) {
	defer trash.Close()
	entries, err := fs.ReadDir(trash.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, trash.RemoveAll(e.Name()))
	}
	if err != nil {
		f.Log.Warn("cache: delete files of dead sandboxes", "error", err)
	}
}

// Shared calls do under the lock, which others may have at the same time.
func (f *Dir) Shared(ctx context.Context, do func() error) error {
	return f.locked(ctx, (*flock.Flock).TryRLockContext, do)
}

// Exclusive calls do under the lock.
func (f *Dir) Exclusive(ctx context.Context, do func() error) error {
	return f.locked(ctx, (*flock.Flock).TryLockContext, do)
}

func (f *Dir) locked(ctx context.Context, take func(*flock.Flock, context.Context, time.Duration) (bool, error), do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l := newLock(f.Path("lock"))
	if _, err := take(l, ctx, lockPause); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("another sandbox holds the lock for %s: %w", lockTimeout, context.Cause(ctx))
		}
		return fmt.Errorf("lock: %w", err)
	}
	defer func() { _ = l.Unlock() }()
	return do()
}

func newLock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
}

// tryLock takes the lock of a run, or returns EWOULDBLOCK.
func tryLock(path string) (*flock.Flock, error) {
	l := newLock(path)
	locked, err := l.TryLock()
	if err == nil && !locked {
		err = unix.EWOULDBLOCK
	}
	return l, err
}

// Usage returns the disk space of directories, in bytes, each file counted once. Files deleted meanwhile count as zero.
func Usage(ctx context.Context, dirs ...string) (int64, error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	var sum int64
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			err = cmp.Or(err, ctx.Err())
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(path, &st)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if id := (file{st.Dev, st.Ino}); st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				if seen[id] {
					return nil
				}
				seen[id] = true
			}
			sum += st.Blocks * 512 // the kernel's unit, independent of the file system
			return nil
		})
		if err != nil {
			return sum, fmt.Errorf("measure %s: %w", dir, err)
		}
	}
	return sum, nil
}
