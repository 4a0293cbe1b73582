package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// scanTime bounds one scan of the root file system: a million entries take some ten seconds.
	scanTime = time.Minute
	// maxKept bounds each copy before the task begins, in bytes and files: it delays the run's start.
	maxKept, maxKeptFiles = 64 << 20, 5000
	// maxRoom bounds a room's copies of the image's files, in bytes and files.
	maxRoom, maxRoomFiles = 4 << 30, 500_000
	// maxSeen bounds the entries examined for that: the agent's are among them.
	maxSeen = 1_000_000
)

// Baseline is the base from which rooms are made.
type Baseline struct {
	cfg   Config
	began time.Time
	seed  maphash.Seed
	had   map[string]content // the image's content of each place, by path
	space Space
	spots []writablePath // nil before the first scan
	made  int
}

// content is the image's content of a place.
type content struct {
	writablePath
	sum
	kept string // a copy; empty if the content is too large for one
}

// NewBaseline records the image's content of all places that the task's code can write. Call it before any such code runs.
func NewBaseline(ctx context.Context, cfg Config) (*Baseline, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create a directory for clean rooms: %w", err)
	}
	// The kernel's file clock may be a tick behind.
	b := &Baseline{cfg: cfg, began: time.Now().Add(-tick), seed: maphash.MakeSeed(), had: map[string]content{}}
	var err error
	if b.space, err = b.cfg.space(); err != nil {
		return nil, err
	}
	spots, err := cfg.scan(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range spots {
		had := content{writablePath: s}
		if s.path != cfg.Task && !slices.Contains(cfg.Layered, s.path) {
			look := b.copier()
			if had.sum, err = look.each(ctx, s.path, func(string, fs.FileInfo) error { return nil }); err != nil {
				return nil, fmt.Errorf("record the image's content of %s: %w", s.path, err)
			}
		}
		if had.files+had.directories > 0 && had.files+had.directories <= maxKeptFiles && had.bytes <= maxKept {
			had.kept = filepath.Join(cfg.Dir, "kept-"+strconv.Itoa(i))
			c := b.copier()
			if had.sum, err = c.copy(ctx, s.path, had.kept); err != nil {
				return nil, fmt.Errorf("copy the image's content of %s: %w", s.path, err)
			}
		}
		b.had[s.path] = had
	}
	return b, nil
}

// Space returns the free disk space.
func (b *Baseline) Space() (Space, error) { return b.cfg.space() }

// copier copies only files that are unchanged since the start: only the kernel sets a file's change time.
func (b *Baseline) copier() copier {
	return copier{bytes: maxRoom, files: maxRoomFiles, entries: maxSeen, before: b.began, seed: b.seed}
}

// tick exceeds the resolution of the kernel's file times: 1 to 10 ms.
const tick = 20 * time.Millisecond

// spaceShare is the percentage of the initially free space that a room needs: otherwise the agent could make checks
// fail on one side only.
const spaceShare = 50

// New creates a room. No process of the agent's side may run meanwhile. fresh creates layered places; if nil, they are
// created like all others.
func (b *Baseline) New(ctx context.Context, fresh LayerFunc) (*Room, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("it took longer than %s", scanTime))
	defer cancel()
	if err := b.cfg.emptyShared(ctx); err != nil {
		return nil, err
	}
	space, err := b.cfg.space()
	if err != nil {
		return nil, err
	}
	if space.Disk < b.space.Disk/100*spaceShare || space.Inodes < b.space.Inodes/100*spaceShare {
		return nil, fmt.Errorf(
			"the disk has %d MiB and %d inodes free, down from %d and %d when the task began: a check could fail for that reason alone",
			space.Disk>>20, space.Inodes, b.space.Disk>>20, b.space.Inodes,
		)
	}
	if b.spots == nil { // programs in rooms leave no files outside of them
		if b.spots, err = b.cfg.scan(ctx); err != nil {
			return nil, err
		}
	}
	b.made++
	r := &Room{HostPaths: map[string]string{}, dir: filepath.Join(b.cfg.Dir, strconv.Itoa(b.made))}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create a clean room: %w", err)
	}
	if err := b.furnish(ctx, r, fresh); err != nil {
		return nil, errors.Join(fmt.Errorf("create a clean room: %w", err), r.clear(ctx))
	}
	return r, nil
}

func (b *Baseline) furnish(ctx context.Context, r *Room, layered LayerFunc) error {
	for i, s := range b.spots {
		if layered != nil && slices.Contains(b.cfg.Layered, s.path) {
			at, remove, ok, err := layered(s.path)
			if err != nil {
				return fmt.Errorf("%s: %w", s.path, err)
			}
			if ok {
				r.HostPaths[s.path], r.remove = at, append(r.remove, remove)
				continue
			}
		}
		fresh := filepath.Join(r.dir, strconv.Itoa(i))
		whole, err := b.emptyPath(ctx, s, fresh)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		if !whole {
			r.Missing = append(r.Missing, fmt.Sprintf("files of the image in %s were changed or removed, so both sides run without them", s.path))
		}
		r.HostPaths[s.path] = fresh
	}
	var err error
	r.Namespace, err = proc.NewNamespace(proc.OwnMountsAndIPC, func() error {
		return errors.Join(cover(r.HostPaths), proc.Hide(slices.Concat(b.cfg.Excluded, b.cfg.Hidden)...))
	})
	return err
}

// Remove removes the room with all of its content. No process may run in it any longer.
func (r *Room) Remove(ctx context.Context) error {
	return errors.Join(r.Namespace.Close(), r.clear(ctx))
}

func (r *Room) clear(ctx context.Context) error {
	err := remove(ctx, r.dir)
	for _, one := range r.remove {
		err = errors.Join(err, one(ctx))
	}
	return err
}

// remove deletes a directory of untrusted content in a separate process, so that its depth and size do not burden boot.
func remove(ctx context.Context, paths ...string) error {
	return proc.Run(
		ctx, proc.Spec{Argv: append([]string{"/bin/rm", "-rf", "--one-file-system", "--"}, paths...), Dir: "/", Env: []string{"LC_ALL=C.UTF-8"}},
	)
}

// emptyPath creates the replacement of a place with the image's content, and reports whether that is complete.
func (b *Baseline) emptyPath(ctx context.Context, s writablePath, at string) (whole bool, err error) {
	had, known := b.had[s.path]
	if known {
		s = had.writablePath // as it was at the start
	}
	if err := s.make(at); err != nil || s.path == b.cfg.Task || known && had.files+had.directories == 0 {
		return true, err
	}
	c, from := b.copier(), s.path
	if had.kept != "" {
		from, c.before = had.kept, time.Time{}
	}
	got, err := c.copy(ctx, from, at)
	return !known || got.names == had.names, err
}

// make creates an empty copy of it.
func (s *writablePath) make(at string) error {
	if !s.dir {
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			return err
		}
	} else if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Lchown(at, int(s.uid), int(s.gid)), os.Chmod(at, perm(s.mode)))
}

func perm(m fs.FileMode) fs.FileMode { return m.Perm() | m&(fs.ModeSticky|fs.ModeSetgid) }

// own are file systems of shared memory: a room gets a new one of each.
var own = []struct{ path, fstype, data string }{
	{"/dev/shm", "tmpfs", "mode=1777,size=64m"}, // the outer engine's own size
	{"/dev/mqueue", "mqueue", ""},
}

// shared reports whether a directory is one of them.
func shared(path string) bool {
	for _, m := range own {
		if m.path == path {
			return true
		}
	}
	return false
}

// kernels are file systems without files, which show the kernel's state. Every other one counts as writable.
var kernels = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.SECURITYFS_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.BINFMTFS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
	unix.SELINUX_MAGIC,
}

func interfaceOfKernel(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return true, nil
		}
		return false, fmt.Errorf("read the mounts of %s: %w", path, err)
	}
	return slices.Contains(kernels, int64(st.Type)), nil
}

// cover mounts the fresh directories and files over the places, in the room's own mount namespace.
func cover(lies map[string]string) error {
	for path, fresh := range lies {
		if err := unix.Mount(fresh, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, m := range own {
		err := unix.Mount(m.fstype, m.path, m.fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, m.data)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cover %s: %w", m.path, err)
		}
	}
	return nil
}
