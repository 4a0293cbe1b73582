package layercache

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
)

// Publish moves the layers of Config.Images that this run pulled or loaded into
// the seed and reports their number. Containers may use them. Call it before untrusted code
// runs, because after that the run's layers cannot be trusted. Images of
// other names stay in the run, because later boxes trust the seed's names.
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
	seed, run := tree{c.seed()}, tree{c.store()}
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

// publishLayer moves one layer. The record, which makes it exist, comes last;
// a layer without one is ignored.
func (c *Cache) publishLayer(seed, run tree, chain, parent string) (bool, error) {
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
	// First a dangling link, then the swap: the run sees the directory at every moment, after the swap through
	// the link.
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

// writeLower names the layers below, by the seed's names for them: another box may have published the same
// parent first, under another directory.
func writeLower(seed tree, id, parent string) error {
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
