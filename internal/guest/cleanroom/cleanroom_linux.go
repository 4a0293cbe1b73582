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
	// maxSeen bounds how many entries are looked at for that: the agent's are among them.
	maxSeen = 1_000_000
)

// Ground is what rooms are made on.
type Ground struct {
	cfg   Config
	began time.Time
	seed  maphash.Seed
	had   map[string]content // what the image has in each place, by path
	space Space
	spots []spot // nil: not looked for yet
	made  int
}

// content is what the image has in a place.
type content struct {
	spot
	sum
	kept string // a copy; "": there is too much for one
}

// Remember notes what the image has where code of the task can write. It is called before any such code runs.
func Remember(ctx context.Context, cfg Config) (*Ground, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for clean rooms: %w", err)
	}
	// The kernel's clock of files may be a tick behind.
	g := &Ground{cfg: cfg, began: time.Now().Add(-tick), seed: maphash.MakeSeed(), had: map[string]content{}}
	var err error
	if g.space, err = g.cfg.space(); err != nil {
		return nil, err
	}
	spots, err := cfg.scan(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range spots {
		had := content{spot: s}
		if s.path != cfg.Task {
			look := g.copier()
			if had.sum, err = look.look(ctx, s.path); err != nil {
				return nil, fmt.Errorf("note what the image has in %s: %w", s.path, err)
			}
		}
		if had.files+had.folders > 0 && had.files+had.folders <= maxKeptFiles && had.bytes <= maxKept {
			had.kept = filepath.Join(cfg.Dir, "kept-"+strconv.Itoa(i))
			c := g.copier()
			if had.sum, err = c.copy(ctx, s.path, had.kept); err != nil {
				return nil, fmt.Errorf("keep what the image has in %s: %w", s.path, err)
			}
		}
		g.had[s.path] = had
	}
	return g, nil
}

// Space is what is free on the disk now.
func (g *Ground) Space() (Space, error) { return g.cfg.space() }

// copier copies what nobody has touched since the beginning: the kernel alone sets the time of a change.
func (g *Ground) copier() copier {
	return copier{bytes: maxRoom, files: maxRoomFiles, entries: maxSeen, before: g.began, seed: g.seed}
}

// tick is more than the grain of the time that the kernel gives to files: 1 to 10 ms.
const tick = 20 * time.Millisecond

// spaceShare is what has to be free for a room of what was when the task began, in percent: the agent could take so much of it that
// checks fail on one side alone, which wants more than the other.
const spaceShare = 50

// New makes a room. Nothing of the agent's side may run meanwhile: what it wrote after the look would not be seen.
func (g *Ground) New(ctx context.Context) (*Room, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("it took longer than %s", scanTime))
	defer cancel()
	if err := g.cfg.emptyShared(ctx); err != nil {
		return nil, err
	}
	space, err := g.cfg.space()
	if err != nil {
		return nil, err
	}
	if space.Disk < g.space.Disk/100*spaceShare || space.Inodes < g.space.Inodes/100*spaceShare {
		return nil, fmt.Errorf("the disk has %d MiB and %d inodes free, it had %d and %d when the task began: a check could fail for that alone",
			space.Disk>>20, space.Inodes, g.space.Disk>>20, g.space.Inodes)
	}
	if g.spots == nil { // what runs in rooms leaves nothing outside of them
		if g.spots, err = g.cfg.scan(ctx); err != nil {
			return nil, err
		}
	}
	g.made++
	r := &Room{Lies: map[string]string{}, dir: filepath.Join(g.cfg.Dir, strconv.Itoa(g.made))}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a clean room: %w", err)
	}
	if err := g.furnish(ctx, r); err != nil {
		return nil, errors.Join(fmt.Errorf("make a clean room: %w", err), remove(ctx, r.dir))
	}
	return r, nil
}

func (g *Ground) furnish(ctx context.Context, r *Room) error {
	for i, s := range g.spots {
		fresh := filepath.Join(r.dir, strconv.Itoa(i))
		whole, err := g.fresh(ctx, s, fresh)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		if !whole {
			r.Lost = append(r.Lost, fmt.Sprintf("files that the image had in %s were changed or removed, so that both sides are without them", s.path))
		}
		r.Lies[s.path] = fresh
	}
	var err error
	r.Place, err = proc.NewPlace(proc.OwnMountsAndIPC, func() error {
		return errors.Join(cover(r.Lies), proc.Hide(slices.Concat(g.cfg.Apart, g.cfg.Hidden)...))
	})
	return err
}

// Leave gives the room up, with all that is in it. Nothing may run there any more.
func (r *Room) Leave(ctx context.Context) error {
	return errors.Join(r.Place.Close(), remove(ctx, r.dir))
}

// remove removes a folder that somebody else could fill, in a process of its own: neither its depth nor its size is boot's burden.
func remove(ctx context.Context, paths ...string) error {
	return proc.Run(ctx, proc.Spec{Argv: append([]string{"/bin/rm", "-rf", "--one-file-system", "--"}, paths...), Dir: "/", Env: []string{"LC_ALL=C.UTF-8"}})
}

// fresh makes what replaces a place: an empty one, with what the image had there. It reports whether that is all of it.
func (g *Ground) fresh(ctx context.Context, s spot, at string) (whole bool, err error) {
	had, known := g.had[s.path]
	if known {
		s = had.spot // as it was
	}
	if err := s.make(at); err != nil || s.path == g.cfg.Task || known && had.files+had.folders == 0 {
		return true, err
	}
	c, from := g.copier(), s.path
	if had.kept != "" {
		from, c.before = had.kept, time.Time{}
	}
	got, err := c.copy(ctx, from, at)
	return !known || got.names == had.names, err
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
