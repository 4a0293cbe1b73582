package layercache

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
)

// holder is a live box and the seed's layers that it uses.
type holder struct {
	id     string
	layers map[string]bool
	// all is set for a box whose program is older than the list of layers:
	// it may use any layer.
	all bool
}

func (h holder) has(layer string) bool { return h.all || h.layers[layer] }

// held reports whether any live box uses the layer.
func held(holders []holder, layer string) bool {
	return slices.ContainsFunc(holders, func(h holder) bool { return h.has(layer) })
}

// hold records the layers, and those of the images, before they are linked.
func (c *folder) hold(seed tree, images, chains []string) error {
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

// note adds to the list of layers that this box uses.
func (c *folder) note(layers ...string) error {
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
func (c *folder) live() (all []holder, err error) {
	ids, err := c.Live()
	for _, id := range ids {
		h := holder{id: id, layers: map[string]bool{}}
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

// touch marks images as used. If a mark cannot be set, the image only looks
// older; the run continues.
func (c *folder) touch(images []string) {
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
