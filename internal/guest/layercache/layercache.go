// Package layercache keeps image layers on a volume that all boxes of a host
// share, so that a service image is pulled once.
//
// A data root belongs to one engine; what can be shared are finished layers, which never
// change. The volume therefore holds a seed (finished layers and what describes them) and, per
// box, a private data root in which the layers of the wanted images are
// symbolic links into the seed. Every box starts without containers, networks
// and volumes by construction, and any number run at once. New layers move into the
// seed by exchanging folder and link in one system call, while containers run on them.
//
// Layout, below <volume>/v1/<driver>-<uid>.<gid> (owners inside layers are
// shifted by the ids, so layers of other ids do not fit):
//
//	lock            exclusive while changing the seed or the list of runs, shared while linking
//	seed/           <driver>/ and image/<driver>/ as in a data root
//	used/<image>    empty; its time is when a box that declares the image last took it
//	runs/<id>/      lock (held by the box for life), layers (those of the seed that it
//	                runs on) and data/ (its data root)
//	trash/          on its way to deletion
//
// A box that is killed leaves nothing that is referred to: its locks are gone
// with it, its run folder is removed by the next box, and a layer half-way into the seed has
// no record, which is written last; the next publish and Prune remove it.
//
// A layer that a live box runs on is never removed. Which layers those are is written
// beside the box's lock, out of reach of untrusted code, before the box links a layer or
// moves one into the seed, under the lock that Prune takes for itself alone.
//
// Untrusted code must not run before Seal: it takes the writable view of the
// volume out of the box, so that only read-only layers remain.
//
// The order of writes is safe against killed boxes, not against a host that
// loses power with unwritten pages.
package layercache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	format = "v1"
	driver = "overlay2" // the only driver whose layers are folders that a link can stand for
	// lockTimeout bounds the wait for another box that links or publishes
	// (milliseconds); after it the box does without the cache.
	lockTimeout = 5 * time.Second
	lockPause   = 5 * time.Millisecond
	// lowDisk is when a seed that nobody uses is emptied, in bytes free.
	lowDisk = 4 << 30
)

// Config describes the cache of one box.
type Config struct {
	// Dir is where the volume is mounted; when nothing is, the box does without.
	Dir string
	// View is where the box sees the seed read-only.
	View string
	// DataRoot is what the private data root is mounted over.
	DataRoot string
	// ID names the run, unique among the boxes of the host.
	ID string
	// Images are the ones whose layers the box will need; no others are published.
	// All links every image.
	Images []string
	All    bool
	// Layers links every layer, for a box that will bring in images of unknown
	// names; for one that wants an image that the cache does not have it is done anyway.
	Layers bool
	// ReadOnly closes the writable view as soon as the data root is placed: for an
	// engine that is started by untrusted code, of which nothing is published.
	ReadOnly bool
	Log      *slog.Logger
	// Mounts is how mounts are made; nil: for real. Tests have no right to.
	Mounts Mounts
}

// Mounts are the mount operations of the cache.
type Mounts interface {
	IsMount(path string) bool
	Bind(source, target string, readOnly bool) error
	Detach(target string) error
}

// defaultView is where the image expects the seed.
const defaultView = "/var/lib/sandbox-agent/layers"

// Cache is the cache as one box uses it. The methods are called one after the other.
type Cache struct {
	*linker
	*pruner
	*folder

	placed bool
	sealed bool
}

// folder is the cache on the disk, and what this box uses of it.
type folder struct {
	cfg     Config
	base    string          // folder of this driver and these ids
	lock    *os.File        // base/lock, not held
	runLock *os.File        // held for life
	ids     string          // uid.gid, or "" without remapping
	held    map[string]bool // layers of the seed that this box runs on
}

// linker makes a data root that has the layers of the cache.
type linker struct{ *folder }

// pruner says what the cache has, and removes what nobody needs.
type pruner struct{ *folder }

func open(cfg Config, base string) *Cache {
	f := &folder{cfg: cfg, base: base}
	return &Cache{linker: &linker{f}, pruner: &pruner{f}, folder: f}
}

// New returns the cache; nothing is touched yet.
func New(cfg Config) *Cache {
	if cfg.View == "" {
		cfg.View = defaultView
	}
	if cfg.Mounts == nil {
		cfg.Mounts = kernel{}
	}
	return open(cfg, "")
}

// Trial is the folder whose file system will hold the layers.
func (c *Cache) Trial() string {
	if c.cfg.Dir != "" && c.cfg.Mounts.IsMount(c.cfg.Dir) {
		return c.cfg.Dir
	}
	return c.cfg.DataRoot
}

// Prepare mounts a data root that has the wanted images over DataRoot. When
// that is not possible it says why and leaves DataRoot alone: the cache is worth
// time, never a run.
func (c *Cache) Prepare(ctx context.Context, drv string, uid, gid int) (placed bool, note string, err error) {
	switch {
	case c.cfg.Dir == "" || !c.cfg.Mounts.IsMount(c.cfg.Dir):
		return false, "layer cache: none, no volume is mounted", nil
	case drv != driver:
		return false, fmt.Sprintf("layer cache: not with the storage driver %s", drv), nil
	}
	start := time.Now()
	n, err := c.place(ctx, uid, gid)
	if err != nil {
		c.drop()
		if ctx.Err() != nil {
			return false, "", context.Cause(ctx)
		}
		return false, fmt.Sprintf("layer cache: not used: %v", err), nil
	}
	c.placed = true
	if c.cfg.ReadOnly {
		if err := c.Seal(); err != nil {
			return true, "", err // an open cache must not meet untrusted code
		}
	}
	return true, fmt.Sprintf("layer cache: %d layers linked in %s", n, time.Since(start).Round(time.Millisecond)), nil
}

func (c *Cache) place(ctx context.Context, uid, gid int) (int, error) {
	c.base = filepath.Join(c.cfg.Dir, format, driver+"-"+strconv.Itoa(uid)+"."+strconv.Itoa(gid))
	if uid != 0 || gid != 0 {
		c.ids = fmt.Sprintf("%d.%d", uid, gid)
	}
	// The volume is closed to everyone but root: layers belong to the user that
	// the agent runs as.
	if err := errors.Join(os.Chmod(c.cfg.Dir, 0o700), mkdirs(c.base, c.seed(), c.path("used"), c.path("runs"), c.path("trash"))); err != nil {
		return 0, err
	}
	var err error
	if c.lock, err = os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return 0, err
	}
	if err := c.locked(ctx, unix.LOCK_EX, c.register); err != nil {
		return 0, err
	}
	n := 0
	if err := c.locked(ctx, unix.LOCK_SH, func() error { n, err = c.link(); return err }); err != nil {
		return 0, err
	}
	if err := c.cfg.Mounts.Bind(c.seed(), c.cfg.View, true); err != nil {
		return 0, err
	}
	if err := c.cfg.Mounts.Bind(c.data(), c.cfg.DataRoot, false); err != nil {
		_ = c.cfg.Mounts.Detach(c.cfg.View) // the error that matters is the other one
		return 0, err
	}
	trash, err := os.OpenRoot(c.path("trash"))
	if err != nil {
		return 0, err
	}
	go c.emptyTrash(trash)
	return n, nil
}

// register clears away dead runs and makes this one. The list of runs is locked.
func (c *Cache) register() error {
	alive, err := c.reap()
	if err != nil {
		return err
	}
	if !alive {
		if err := c.emptyWhenLow(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(c.run(), 0o700); err != nil {
		return err
	}
	// The folder is locked before others see it: both happen under c.lock.
	if c.runLock, err = lockFile(filepath.Join(c.run(), "lock")); err != nil {
		return err
	}
	// Inner root, who is not root here, passes through the data root.
	if err := errors.Join(os.Mkdir(c.data(), 0o711), os.Chmod(c.data(), 0o711)); err != nil {
		return err
	}
	return c.canExchange()
}

// reap moves the folders of runs whose box is gone to the trash and reports
// whether any other run lives.
func (c *folder) reap() (alive bool, err error) {
	runs, err := os.ReadDir(c.path("runs"))
	if err != nil {
		return false, err
	}
	for _, r := range runs {
		dir := c.path("runs", r.Name())
		f, err := lockFile(filepath.Join(dir, "lock"))
		if errors.Is(err, unix.EWOULDBLOCK) {
			alive = true
			continue
		}
		if err != nil {
			return alive, err
		}
		err = c.discard(dir)
		f.Close()
		if err != nil {
			return alive, err
		}
	}
	return alive, nil
}

// emptyWhenLow throws the seed away when the disk is nearly full and nobody
// else uses it: a cache is the first thing a full disk can do without.
func (c *Cache) emptyWhenLow() error {
	var st unix.Statfs_t
	if err := unix.Statfs(c.base, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= lowDisk {
		return nil
	}
	c.cfg.Log.Warn("layer cache: emptied, the disk is nearly full")
	if err := c.discard(c.seed()); err != nil {
		return err
	}
	return mkdirs(c.seed())
}

// canExchange makes sure that the file system can do what Publish needs.
func (c *Cache) canExchange() error {
	a, b := filepath.Join(c.run(), "a"), filepath.Join(c.run(), "b")
	if err := errors.Join(os.Mkdir(a, 0o700), os.Symlink("x", b)); err != nil {
		return err
	}
	if err := exchange(a, b); err != nil {
		return fmt.Errorf("exchange folder and link: %w", err)
	}
	return errors.Join(os.Remove(a), os.Remove(b))
}

// Seal takes the writable view of the volume away. From here on the box sees
// the seed read-only, and its own data root.
func (c *Cache) Seal() error {
	if c.cfg.Dir == "" || c.sealed || !c.cfg.Mounts.IsMount(c.cfg.Dir) {
		return nil
	}
	if err := c.cfg.Mounts.Detach(c.cfg.Dir); err != nil {
		return fmt.Errorf("close layer cache: %w", err)
	}
	c.sealed = true
	return nil
}

// Want adds images to Config.Images, for a box that learns only later what it
// brings in.
func (c *Cache) Want(images ...string) { c.cfg.Images = append(c.cfg.Images, images...) }

// Close gives the box's data root back, which no engine may use any more. Boxes
// that do not call it leave that to the next one.
func (c *Cache) Close() error {
	if !c.placed || c.sealed {
		return nil
	}
	c.placed = false
	err := errors.Join(c.cfg.Mounts.Detach(c.cfg.DataRoot), c.cfg.Mounts.Detach(c.cfg.View), c.discard(c.run()))
	err = errors.Join(err, c.runLock.Close(), c.lock.Close())
	trash, terr := os.OpenRoot(c.path("trash"))
	if err = errors.Join(err, terr); err != nil {
		return fmt.Errorf("close layer cache: %w", err)
	}
	c.emptyTrash(trash)
	return nil
}

// drop undoes a placement that did not work out.
func (c *Cache) drop() {
	if c.runLock != nil {
		_ = c.discard(c.run()) // else the next box does it
		_ = c.runLock.Close()
		c.runLock = nil
	}
	if c.lock != nil {
		_ = c.lock.Close()
		c.lock = nil
	}
}

func (c *folder) discard(path string) error {
	return os.Rename(path, c.path("trash", filepath.Base(path)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36)))
}

// emptyTrash goes on after Seal: it has the folder open.
func (c *folder) emptyTrash(trash *os.Root) {
	defer trash.Close()
	entries, err := fs.ReadDir(trash.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, trash.RemoveAll(e.Name()))
	}
	if err != nil {
		c.cfg.Log.Warn("layer cache: delete what dead sandboxes left", "err", err)
	}
}

func (c *folder) path(p ...string) string { return filepath.Join(append([]string{c.base}, p...)...) }
func (c *folder) seed() string            { return c.path("seed") }
func (c *folder) run() string             { return c.path("runs", c.cfg.ID) }
func (c *folder) data() string            { return filepath.Join(c.run(), "data") }

// store is the engine's folder in the data root, shifted by the ids.
func (c *folder) store() string { return filepath.Join(c.data(), c.ids) }

// locked runs f under the lock of the cache.
func (c *folder) locked(ctx context.Context, how int, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(c.lock.Fd()), how|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another sandbox holds the lock for %s: %w", lockTimeout, context.Cause(ctx))
		case <-time.After(lockPause):
		}
	}
	defer func() { _ = unix.Flock(int(c.lock.Fd()), unix.LOCK_UN) }()
	return f()
}

// lockFile takes the lock of a run, or says EWOULDBLOCK.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
