package cleanroom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// scanTime bounds one look at the root file system: a million entries take some ten seconds.
	scanTime = time.Minute
	// maxKept bounds each copy that is made before the task begins, in bytes and files: it costs each run's start, and the
	// image's own home has three small files.
	maxKept, maxKeptFiles = 64 << 20, 5000
	// maxRoom bounds what of the image a room copies, in bytes and files: an image with a toolchain in the home has a gigabyte.
	maxRoom, maxRoomFiles = 4 << 30, 500_000
)

// Ground is what rooms are made on.
type Ground struct {
	cfg   Config
	began time.Time
	kept  map[string]string // copies of Config.Keep, by path; those that are too large for one have none
	spots []spot            // nil: not looked for yet
	made  int
}

// Remember notes what the image has where code of the task can write. It is called before any such code runs.
func Remember(ctx context.Context, cfg Config) (*Ground, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for clean rooms: %w", err)
	}
	g := &Ground{cfg: cfg, kept: map[string]string{}}
	for i, path := range cfg.Keep {
		to := filepath.Join(cfg.Dir, "kept-"+strconv.Itoa(i))
		c := copier{bytes: maxKept, files: maxKeptFiles}
		switch err := c.copy(ctx, path, to); {
		case errors.Is(err, errTooMuch), errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("keep what the image has in %s: %w", path, err)
		default:
			g.kept[path] = to
		}
	}
	// Last, so that the copy changes nothing that is older. The kernel's clock of files may be a tick behind.
	g.began = time.Now().Add(-tick)
	return g, nil
}

// tick is more than the grain of the time that the kernel gives to files: 1 to 10 ms.
const tick = 20 * time.Millisecond

// New makes a room. Nothing of the agent's side may run meanwhile: what it wrote after the look would not be seen.
func (g *Ground) New(ctx context.Context) (*Room, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("it took longer than %s", scanTime))
	defer cancel()
	if g.spots == nil { // what runs in rooms leaves nothing outside of them
		var err error
		if g.spots, err = g.cfg.scan(ctx); err != nil {
			return nil, err
		}
	}
	g.made++
	dir := filepath.Join(g.cfg.Dir, strconv.Itoa(g.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a clean room: %w", err)
	}
	r := &Room{Lies: map[string]string{}}
	c := copier{bytes: maxRoom, files: maxRoomFiles, before: g.began}
	for i, s := range g.spots {
		fresh := filepath.Join(dir, strconv.Itoa(i))
		if err := g.fresh(ctx, &c, s, fresh); err != nil {
			return nil, fmt.Errorf("make a clean room: %s: %w", s.path, err)
		}
		r.Lies[s.path] = fresh
	}
	var err error
	if r.Place, err = proc.NewPlace(func() error { return cover(r.Lies) }); err != nil {
		return nil, fmt.Errorf("make a clean room: %w", err)
	}
	return r, nil
}

// fresh makes what replaces a place: an empty one, with what the image had there. That is a copy from before, and elsewhere what
// nobody has touched since: the kernel alone sets the time of a change.
func (g *Ground) fresh(ctx context.Context, c *copier, s spot, at string) error {
	if kept := g.kept[s.path]; kept != "" {
		all := copier{bytes: c.bytes, files: c.files}
		return all.copy(ctx, kept, at)
	}
	if err := s.make(at); err != nil || s.path == g.cfg.Task {
		return err
	}
	return c.copy(ctx, s.path, at)
}

// make makes an empty one like it.
func (s *spot) make(at string) error {
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

// own are file systems that are memory shared by name: a new one of each.
var own = []struct{ path, fstype, data string }{
	{"/dev/shm", "tmpfs", "mode=1777,size=64m"}, // the outer engine's own size
	{"/dev/mqueue", "mqueue", ""},
}

// cover puts the fresh ones over the places, in the room's own mount namespace.
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
