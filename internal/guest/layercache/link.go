package layercache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
)

// link adds the wanted images to the run's data root and counts the linked layers. The caller holds the seed's shared lock.
func (c *linker) link() (int, error) {
	seed, run := imageStore{c.seed()}, imageStore{c.store()}
	names, err := seed.names()
	if err != nil {
		return 0, err
	}
	// A missing image shares layers with others: the engine uses the existing ones, and only the rest costs time and disk.
	var chains []string
	if c.cfg.Layers || names.lacks(c.cfg.Images) {
		if chains, err = list(seed.meta("layerdb", "sha256")); err != nil {
			return 0, err
		}
		chains = slices.DeleteFunc(chains, func(chain string) bool { return !seed.sound(chain) })
	}
	if !c.cfg.All {
		names = names.only(c.cfg.Images)
	}
	images := names.ids()
	if err := c.hold(seed, images, chains); err != nil {
		return 0, err
	}
	if len(images)+len(chains) == 0 {
		return 0, nil
	}
	if c.ids != "" {
		if err := mkdirLike(c.Path("seed", driver), c.store()); err != nil {
			return 0, err
		}
	}
	if err := c.skeleton(seed, run); err != nil {
		return 0, err
	}
	n, err := c.linkLayers(seed, run, chains)
	if err != nil {
		return n, err
	}
	for _, image := range images {
		layers, err := seed.chain(image)
		if err != nil {
			return n, err
		}
		var own []string
		for _, l := range layers {
			own = append(own, l.chain)
		}
		did, err := c.linkLayers(seed, run, own)
		n += did
		if err != nil {
			return n, err
		}
		if err := describe(seed, run, image, layers); err != nil {
			return n, fmt.Errorf("link image %s: %w", image, err)
		}
	}
	if !c.cfg.All { // linked as a precaution, not used
		c.touch(images)
	}
	return n, run.setNames(names)
}

func (c *linker) linkLayers(seed, run imageStore, chains []string) (n int, err error) {
	for _, chain := range chains {
		did, err := c.linkLayer(seed, run, chain)
		if err != nil {
			return n, fmt.Errorf("link layer %s: %w", chain, err)
		}
		if did {
			n++
		}
	}
	return n, nil
}

// skeleton creates the directories of the layers like the engine does.
func (c *linker) skeleton(from, to imageStore) error {
	return errors.Join(
		mkdirLike(from.layers(), to.layers()),
		mkdirLike(from.layers("l"), to.layers("l")),
		os.MkdirAll(to.meta("layerdb", "sha256"), 0o700),
	)
}

// linkLayer creates a layer directory whose content is a link to the seed's.
func (c *linker) linkLayer(seed, run imageStore, chain string) (bool, error) {
	if run.cacheID(chain) != "" {
		return false, nil
	}
	id := seed.cacheID(chain)
	if id == "" {
		return false, errors.New("the seed does not have this layer")
	}
	if err := mkdirLike(seed.layers(id), run.layers(id)); err != nil {
		return false, err
	}
	if err := os.Symlink(c.view(id), run.layers(id, "diff")); err != nil {
		return false, err
	}
	for _, f := range []string{"link", "lower", "committed"} {
		if err := copyFile(seed.layers(id, f), run.layers(id, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	if err := linkName(run, id); err != nil {
		return false, err
	}
	if _, err := os.Lstat(run.layers(id, "lower")); err == nil {
		if err := os.Mkdir(run.layers(id, "work"), 0o700); err != nil {
			return false, err
		}
	}
	return true, copyRecord(seed.record(chain), run.record(chain), filepath.Join(c.cfg.View, "image", driver, "layerdb", "sha256", chain))
}

// view returns the box's path of a layer's content in the seed.
func (c *linker) view(id string) string { return filepath.Join(c.cfg.View, driver, id, "diff") }

// linkName creates the short name by which other layers refer to this one.
func linkName(t imageStore, id string) error {
	name, err := os.ReadFile(t.layers(id, "link"))
	if err != nil {
		return err
	}
	err = os.Symlink(filepath.Join("..", id, "diff"), t.layers("l", string(name)))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// copyRecord creates the record of a layer, with a link for the large file if it is accessible below view.
func copyRecord(from, to, view string) error {
	const big = "tar-split.json.gz"
	tmp := filepath.Join(filepath.Dir(filepath.Dir(to)), "tmp", filepath.Base(to))
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dst := filepath.Join(tmp, e.Name())
		if e.Name() == big && view != "" {
			err = os.Symlink(filepath.Join(view, big), dst)
		} else {
			err = copyFile(filepath.Join(from, e.Name()), dst)
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(tmp, to)
}

// Publish moves the layers of Config.Images from this run into the seed and counts them. Containers may use them. Call
// it before untrusted code runs, which could change them. Other images stay in the run.
func (c *Cache) Publish(ctx context.Context) (int, error) {
	if !c.placed || c.sealed {
		return 0, nil
	}
	n := 0
	err := c.Exclusive(ctx, func() error {
		var err error
		n, err = c.publish()
		return err
	})
	if err != nil {
		return n, fmt.Errorf("publish layers: %w", err)
	}
	return n, nil
}

func (c *Cache) publish() (int, error) {
	seed, run := imageStore{c.seed()}, imageStore{c.store()}
	all, err := run.names()
	fresh := all.only(c.cfg.Images)
	if err != nil || len(fresh.Repositories) == 0 {
		return 0, err
	}
	if err := errors.Join(
		mkdirLike(run.layers(), seed.layers()), mkdirLike(run.layers("l"), seed.layers("l")), os.MkdirAll(seed.meta("layerdb", "sha256"), 0o700),
	); err != nil {
		return 0, err
	}
	holders, err := c.live()
	if err != nil {
		return 0, err
	}
	if _, err := c.sweep(seed, holders); err != nil {
		return 0, fmt.Errorf("remove files of a dead sandbox: %w", err)
	}
	n := 0
	for _, image := range fresh.ids() {
		layers, err := run.chain(image)
		if err != nil {
			return n, err
		}
		parent := ""
		for _, l := range layers {
			did, err := c.publishLayer(seed, run, l.chain, parent)
			if err != nil {
				return n, fmt.Errorf("layer %s: %w", l.chain, err)
			}
			if did {
				n++
			}
			parent = l.chain
		}
		if err := describe(run, seed, image, layers); err != nil {
			return n, fmt.Errorf("image %s: %w", image, err)
		}
	}
	known, err := seed.names()
	if err != nil {
		return n, err
	}
	known.add(fresh)
	c.touch(fresh.ids())
	return n, seed.setNames(known)
}

// publishLayer moves one layer. The record, which makes it exist, comes last; a layer without one is ignored.
func (c *Cache) publishLayer(seed, run imageStore, chain, parent string) (bool, error) {
	if seed.cacheID(chain) != "" {
		return false, nil
	}
	id := run.cacheID(chain)
	if id == "" {
		return false, errors.New("the engine has no record of it")
	}
	if st, err := os.Lstat(run.layers(id, "diff")); err != nil || !st.IsDir() {
		return false, errors.Join(errors.New("its directory has been moved already"), err)
	}
	// Left by a failed try of this box before the swap.
	if err := os.RemoveAll(seed.layers(id)); err != nil {
		return false, err
	}
	if err := mkdirLike(run.layers(id), seed.layers(id)); err != nil {
		return false, err
	}
	for _, f := range []string{"link", "committed"} {
		if err := copyFile(run.layers(id, f), seed.layers(id, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	if err := writeLower(seed, id, parent); err != nil {
		return false, err
	}
	if err := linkName(seed, id); err != nil {
		return false, err
	}
	// First a dangling link, then the swap: the run sees the directory at every moment, after the swap through the link.
	if err := os.Symlink(c.view(id), seed.layers(id, "diff")); err != nil {
		return false, err
	}
	if err := c.note(id); err != nil {
		return false, err
	}
	if err := exchange(run.layers(id, "diff"), seed.layers(id, "diff")); err != nil {
		return false, err
	}
	return true, copyRecord(run.record(chain), seed.record(chain), "")
}

// writeLower names the layers below, by the seed's names, which another box may have published.
func writeLower(seed imageStore, id, parent string) error {
	if parent == "" {
		return nil
	}
	pid := seed.cacheID(parent)
	name, err := os.ReadFile(seed.layers(pid, "link"))
	if err != nil {
		return err
	}
	lower := "l/" + string(name)
	rest, err := os.ReadFile(seed.layers(pid, "lower"))
	if err == nil && len(rest) > 0 {
		lower += ":" + string(rest)
	}
	return atomicfile.Write(seed.layers(id, "lower"), []byte(lower), 0o600)
}
