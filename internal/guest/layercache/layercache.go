// Package layercache keeps image layers on a volume that all boxes of a host share, so that a service image is pulled once.
//
// Layout, below <volume>/v1/<driver>-<uid>.<gid> (owners inside layers are shifted by the ids, so layers of other ids do not fit):
//
//	lock            exclusive while changing the seed or the list of runs, shared while linking
//	seed/           <driver>/ and image/<driver>/ as in a data root
//	used/<image>    empty; its time is when a box that declares the image last took it
//	runs/<id>/      lock (held by the box for life), layers (those of the seed that it
//	                runs on) and data/ (its data root)
//	trash/          on its way to deletion
//
// A layer half-way into the seed has no record, because the record is written last; the next publish and Prune remove the layer. A
// box lists a layer beside its lock before it links it, so Prune never removes a layer in use. Untrusted code must not run before
// Seal, which removes the writable view of the volume from the box.
package layercache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
)

const (
	format = "v1"
	driver = "overlay2" // the only driver whose layers are directories that a link can replace
	// lowDisk is the free space, in bytes, below which an unused seed is emptied.
	lowDisk = 4 << 30
)

// Config describes the cache of one box.
type Config struct {
	// Dir is the volume's mount point; if nothing is mounted there, the box works without the cache.
	Dir string
	// View is the read-only path of the seed in the box.
	View string
	// DataRoot is the path over which the private data root is mounted.
	DataRoot string
	// ID identifies the run uniquely among the boxes of the host.
	ID string
	// Images lists the images whose layers the box will need; no others are published. All links every image.
	Images []string
	All    bool
	// Layers links every layer, for a box that will add images of unknown names, or if a wanted image is missing.
	Layers bool
	// ReadOnly closes the writable view as soon as the data root exists, for an engine that untrusted code starts.
	ReadOnly bool
	Log      *slog.Logger
	// Mounts makes the mounts; nil means real ones. Tests replace it, because they lack the permission.
	Mounts Mounts
}

// Mounts are the mount operations of the cache.
type Mounts interface {
	IsMount(path string) bool
	Bind(source, target string, readOnly bool) error
	Detach(target string) error
}

// defaultView is the path at which the image expects the seed.
const defaultView = "/var/lib/sandbox-agent/layers"

// Cache is one box's access to the cache. It is not safe for concurrent use.
type Cache struct {
	*linker
	*pruner
	*diskCache

	placed bool
	sealed bool
}

// diskCache is the cache on the disk, and the parts that this box uses.
type diskCache struct {
	*cachevolume.Dir // of this driver and these ids

	cfg  Config
	ids  string          // uid.gid, or "" without remapping
	held map[string]bool // layers of the seed that this box uses
}

// linker creates a data root with the layers of the cache.
type linker struct{ *diskCache }

// pruner lists the cache's content, and removes unused parts.
type pruner struct{ *diskCache }

func open(cfg Config, base string) *Cache {
	f := &diskCache{cfg: cfg, Dir: &cachevolume.Dir{Base: base, ID: cfg.ID, Log: cfg.Log}}
	return &Cache{linker: &linker{f}, pruner: &pruner{f}, diskCache: f}
}

// New returns the cache; nothing is touched yet.
func New(cfg Config) *Cache {
	cfg.View = cmp.Or(cfg.View, defaultView)
	if cfg.Mounts == nil {
		cfg.Mounts = kernel{}
	}
	return open(cfg, "")
}

// Trial returns a directory on the file system that will hold the layers.
func (c *Cache) Trial() string {
	if c.cfg.Dir != "" && c.cfg.Mounts.IsMount(c.cfg.Dir) {
		return c.cfg.Dir
	}
	return c.cfg.DataRoot
}

// Prepare mounts a data root with the wanted images over DataRoot, or returns the reason and leaves DataRoot alone.
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
		_ = c.Leave()
		if ctx.Err() != nil {
			return false, "", context.Cause(ctx)
		}
		return false, fmt.Sprintf("layer cache: not used: %v", err), nil
	}
	c.placed = true
	if c.cfg.ReadOnly {
		if err := c.Seal(); err != nil {
			return true, "", err // untrusted code must not run with an open cache
		}
	}
	return true, fmt.Sprintf("layer cache: %d layers linked in %s", n, time.Since(start).Round(time.Millisecond)), nil
}

func (c *Cache) place(ctx context.Context, uid, gid int) (int, error) {
	c.Base = filepath.Join(c.cfg.Dir, format, driver+"-"+strconv.Itoa(uid)+"."+strconv.Itoa(gid))
	if uid != 0 || gid != 0 {
		c.ids = fmt.Sprintf("%d.%d", uid, gid)
	}
	if err := errors.Join(os.Chmod(c.cfg.Dir, 0o700), c.Open("seed", "used")); err != nil {
		return 0, err
	}
	if err := c.Exclusive(ctx, c.register); err != nil {
		return 0, err
	}
	n := 0
	if err := c.Shared(ctx, func() (err error) { n, err = c.link(); return err }); err != nil {
		return 0, err
	}
	if err := c.cfg.Mounts.Bind(c.seed(), c.cfg.View, true); err != nil {
		return 0, err
	}
	if err := c.cfg.Mounts.Bind(c.data(), c.cfg.DataRoot, false); err != nil {
		_ = c.cfg.Mounts.Detach(c.cfg.View) // the other error is the relevant one
		return 0, err
	}
	trash, err := c.Trash()
	if err != nil {
		return 0, err
	}
	go c.EmptyTrash(trash)
	return n, nil
}

// register registers this run, after removing the dead ones. The list of runs is locked.
func (c *Cache) register() error {
	alive, err := c.Register()
	if err != nil {
		return err
	}
	if !alive {
		if err := c.emptyWhenLow(); err != nil {
			return err
		}
	}
	// Inner root, which is not root here, must be able to traverse the data root.
	if err := errors.Join(os.Mkdir(c.data(), 0o711), os.Chmod(c.data(), 0o711)); err != nil {
		return err
	}
	return c.canExchange()
}

// emptyWhenLow deletes the seed if the disk is nearly full and no other box uses it.
func (c *Cache) emptyWhenLow() error {
	var st unix.Statfs_t
	if err := unix.Statfs(c.Base, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= lowDisk {
		return nil
	}
	c.cfg.Log.Warn("layer cache: emptied, the disk is nearly full")
	if err := c.Discard(c.seed()); err != nil {
		return err
	}
	return mkdirs(c.seed())
}

func (c *Cache) canExchange() error {
	a, b := filepath.Join(c.Run(), "a"), filepath.Join(c.Run(), "b")
	if err := errors.Join(os.Mkdir(a, 0o700), os.Symlink("x", b)); err != nil {
		return err
	}
	if err := exchange(a, b); err != nil {
		return fmt.Errorf("exchange directory and link: %w", err)
	}
	return errors.Join(os.Remove(a), os.Remove(b))
}

// Seal removes the writable view of the volume. From then on the box sees the seed read-only, and its own data root.
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

// Want adds images to Config.Images, for a box that learns of them later.
func (c *Cache) Want(images ...string) { c.cfg.Images = append(c.cfg.Images, images...) }

// Close deletes the box's data root, which no engine may be using. If it is not called, the next box deletes it.
func (c *Cache) Close() error {
	if !c.placed || c.sealed {
		return nil
	}
	c.placed = false
	trash, err := c.Trash()
	err = errors.Join(err, c.cfg.Mounts.Detach(c.cfg.DataRoot), c.cfg.Mounts.Detach(c.cfg.View), c.Leave())
	if trash != nil {
		c.EmptyTrash(trash)
	}
	if err != nil {
		return fmt.Errorf("close layer cache: %w", err)
	}
	return nil
}

func (c *diskCache) seed() string { return c.Path("seed") }
func (c *diskCache) data() string { return filepath.Join(c.Run(), "data") }

// store returns the engine's directory in the data root, shifted by the ids.
func (c *diskCache) store() string { return filepath.Join(c.data(), c.ids) }

type layerUser struct {
	id     string
	layers map[string]bool
	// all is set for a box whose program is older than the list of layers: it may use any layer.
	all bool
}

func (h layerUser) has(layer string) bool { return h.all || h.layers[layer] }

func held(holders []layerUser, layer string) bool {
	return slices.ContainsFunc(holders, func(h layerUser) bool { return h.has(layer) })
}

// hold records the layers, and those of the images, before they are linked.
func (c *diskCache) hold(seed imageStore, images, chains []string) error {
	var ids []string
	for _, chain := range chains {
		ids = append(ids, seed.cacheID(chain))
	}
	for _, image := range images {
		layers, err := seed.chain(image)
		if err != nil {
			return err
		}
		for _, l := range layers {
			ids = append(ids, seed.cacheID(l.chain))
		}
	}
	return c.note(ids...)
}

func (c *diskCache) note(layers ...string) error {
	if c.held == nil {
		c.held = map[string]bool{}
	}
	for _, l := range layers {
		c.held[l] = true
	}
	list := strings.Join(slices.Sorted(maps.Keys(c.held)), "\n")
	if err := atomicfile.Write(filepath.Join(c.Run(), "layers"), []byte(list+"\n"), 0o600); err != nil {
		return fmt.Errorf("record the layers in use: %w", err)
	}
	return nil
}

// live lists the live boxes, including this one. The list of runs is locked.
func (c *diskCache) live() (all []layerUser, err error) {
	ids, err := c.Live()
	for _, id := range ids {
		h := layerUser{id: id, layers: map[string]bool{}}
		b, err := os.ReadFile(c.Path("runs", id, "layers"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			h.all = true
		case err != nil:
			return nil, err
		}
		for layer := range strings.FieldsSeq(string(b)) {
			h.layers[layer] = true
		}
		all = append(all, h)
	}
	return all, err
}

// touch marks images as used. If a mark cannot be set, the image only looks older; the run continues.
func (c *diskCache) touch(images []string) {
	now := time.Now()
	for _, id := range images {
		f, err := os.OpenFile(c.Path("used", id), os.O_CREATE|os.O_RDONLY, 0o600)
		if err == nil {
			f.Close()
			err = os.Chtimes(f.Name(), now, now)
		}
		if err != nil {
			c.cfg.Log.Warn("layer cache: mark an image as used", "error", err)
		}
	}
}
