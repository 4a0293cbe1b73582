package layercache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// trialPrefix begins the directories of storage driver trials; one older than trialAge belongs to a dead box.
const (
	trialPrefix = ".trial-"
	trialAge    = 10 * time.Minute
)

// Maintainer maintains the whole volume while boxes run. Its methods are safe for concurrent use by several boxes.
type Maintainer struct {
	Dir string // mount point of the volume
	Log *slog.Logger
	Now func() time.Time // nil for time.Now
}

func (u *Maintainer) now() time.Time {
	if u.Now != nil {
		return u.Now()
	}
	return time.Now()
}

func (u *Maintainer) each(f func(c *Cache, name string) error) error {
	names, err := list(filepath.Join(u.Dir, format))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, driver+"-") {
			continue
		}
		c := open(Config{Dir: u.Dir, Log: u.Log}, filepath.Join(u.Dir, format, name))
		if err := u.with(c, func() error { return f(c, name) }); err != nil {
			return fmt.Errorf("layer cache %s: %w", name, err)
		}
	}
	return nil
}

func (u *Maintainer) with(c *Cache, f func() error) error {
	if err := c.Open("seed", "used"); err != nil {
		return err
	}
	return f()
}

// List describes the volume's content. Boxes may change it meanwhile: sizes on the disk are current values.
func (u *Maintainer) List(ctx context.Context) (*workorder.CacheReport, error) {
	r := &workorder.CacheReport{Stores: []workorder.CacheStore{}, Brought: []string{}}
	err := u.each(func(c *Cache, name string) error {
		s := newStore(name)
		err := c.Shared(ctx, func() error { return c.inventory(&s) })
		if err != nil {
			return err
		}
		// Without the lock, so that no box has to wait.
		for dir, n := range map[string]*int64{"seed": &s.SeedBytes, "runs": &s.BoxBytes, "trash": &s.TrashBytes} {
			if *n, err = cachevolume.Usage(ctx, c.Path(dir)); err != nil {
				return err
			}
		}
		r.Stores = append(r.Stores, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.DiskBytes, err = cachevolume.Usage(ctx, u.Dir)
	return r, err
}

func newStore(name string) workorder.CacheStore {
	return workorder.CacheStore{Name: name, Images: []workorder.CacheImage{}, Boxes: []string{}, Removed: []workorder.CacheImage{}}
}

func (c *pruner) inventory(s *workorder.CacheStore) error {
	st, err := c.content()
	if err != nil {
		return err
	}
	holders, err := c.live()
	if err != nil {
		return err
	}
	describeStore(s, st, st.images, holders)
	return nil
}

func describeStore(s *workorder.CacheStore, st *seedContent, images []image, holders []layerUser) {
	used := users(st.images)
	for _, i := range images {
		s.Images = append(s.Images, st.report(i, used, holders))
	}
	slices.SortFunc(s.Images, func(a, b workorder.CacheImage) int {
		return cmp.Or(slices.Compare(a.Names, b.Names), cmp.Compare(a.ID, b.ID))
	})
	s.Layers = len(st.records)
	for _, h := range holders {
		s.Boxes = append(s.Boxes, h.id)
	}
}

// PruneOptions select what to remove.
type PruneOptions struct {
	// OlderThan is the minimum time since a box last wanted an image; 0 selects all images.
	OlderThan time.Duration
	// DryRun lists the selection and changes nothing.
	DryRun bool
}

// Prune removes images that were not wanted for OlderThan and are not in use, then unused layers, then dead boxes' leftovers.
func (u *Maintainer) Prune(ctx context.Context, o PruneOptions) (*workorder.CacheReport, error) {
	r := &workorder.CacheReport{Stores: []workorder.CacheStore{}, Brought: []string{}}
	err := u.each(func(c *Cache, name string) error {
		s := newStore(name)
		var gone []string
		err := c.Exclusive(ctx, func() error {
			var err error
			gone, err = c.prune(&s, o, u.now())
			return err
		})
		if err != nil {
			return err
		}
		r.Stores = append(r.Stores, s)
		freed, err := cachevolume.Usage(ctx, append(gone, c.Path("trash"))...)
		r.FreedBytes += freed
		if err != nil || o.DryRun {
			return err
		}
		trash, err := c.Trash()
		if err == nil {
			c.EmptyTrash(trash)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, u.trials(ctx, r, o.DryRun)
}

// trials removes the leftovers of boxes that died during a storage driver's trial.
func (u *Maintainer) trials(ctx context.Context, r *workorder.CacheReport, dryRun bool) error {
	names, err := list(u.Dir)
	for _, n := range names {
		path := filepath.Join(u.Dir, n)
		st, serr := os.Lstat(path)
		if !strings.HasPrefix(n, trialPrefix) || serr != nil || u.now().Sub(st.ModTime()) < trialAge {
			continue
		}
		freed, uerr := cachevolume.Usage(ctx, path)
		r.FreedBytes += freed
		err = errors.Join(err, uerr)
		if !dryRun {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
