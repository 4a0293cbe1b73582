package layercache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// stock is the content of a seed, as read under its lock.
type stock struct {
	seed   tree
	names  repositories
	images []image
	// records are the existing layers: directory by chain.
	records map[string]string
}

type image struct {
	id        string // without algorithm
	names     []string
	layers    []layer
	published time.Time
	used      time.Time
	problem   string
}

// unused returns when the image was last wanted.
func (i image) unused() time.Time {
	if i.used.After(i.published) {
		return i.used
	}
	return i.published
}

// stock reads the seed. It includes damaged images and marks them.
func (c *folder) stock() (*stock, error) {
	s := &stock{seed: tree{c.seed()}, records: map[string]string{}}
	var err error
	if s.names, err = s.seed.names(); err != nil {
		return nil, err
	}
	chains, err := list(s.seed.meta("layerdb", "sha256"))
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		s.records[chain] = s.seed.cacheID(chain)
	}
	named := map[string][]string{}
	for _, refs := range s.names.Repositories {
		for ref, id := range refs {
			id = strings.TrimPrefix(id, "sha256:")
			named[id] = append(named[id], ref)
		}
	}
	ids, err := list(s.seed.meta("imagedb", "content", "sha256"))
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !hidden(id) {
			s.images = append(s.images, c.image(s, id, named[id]))
		}
		delete(named, id)
	}
	for id, refs := range named {
		s.images = append(s.images, image{id: id, names: refs, problem: "its configuration is missing"})
	}
	return s, nil
}

func (c *folder) image(s *stock, id string, names []string) image {
	i := image{id: id, names: slices.Sorted(slices.Values(names))}
	if st, err := os.Stat(s.seed.config(id)); err == nil {
		i.published = st.ModTime()
	}
	if st, err := os.Stat(c.Path("used", id)); err == nil {
		i.used = st.ModTime()
	}
	var err error
	if i.layers, err = s.seed.chain(id); err != nil {
		i.problem = err.Error()
	}
	for _, l := range i.layers {
		folder := s.records[l.chain]
		if folder == "" {
			i.problem = "its layer " + l.chain + " is missing"
		} else if st, err := os.Lstat(s.seed.layers(folder, "diff")); err != nil || !st.IsDir() {
			i.problem = "the content of its layer " + l.chain + " is missing"
		}
	}
	return i
}

// top returns the directory of the image's last layer, "" if it has none.
func (s *stock) top(i image) string {
	if len(i.layers) == 0 {
		return ""
	}
	return s.records[i.layers[len(i.layers)-1].chain]
}

// report describes an image. used counts the images of each layer.
func (s *stock) report(i image, used map[string]int, holders []holder) workorder.CacheImage {
	r := workorder.CacheImage{
		ID: "sha256:" + i.id, Names: append([]string{}, i.names...), PublishedAt: i.published.UTC(), UsedAt: i.unused().UTC(),
		Boxes: []string{}, Problem: i.problem,
	}
	for _, l := range i.layers {
		if size := s.size(l.chain); used[l.chain] > 1 {
			r.SharedBytes += size
		} else {
			r.OwnBytes += size
		}
	}
	for _, h := range holders {
		if top := s.top(i); top != "" && h.has(top) {
			r.Boxes = append(r.Boxes, h.id)
		}
	}
	return r
}

// size returns the size of a layer's content, as counted by the engine; 0 if it did not count.
func (s *stock) size(chain string) int64 {
	b, _ := os.ReadFile(filepath.Join(s.seed.record(chain), "size"))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// users counts the images of each layer.
func users(images []image) map[string]int {
	n := map[string]int{}
	for _, i := range images {
		for _, l := range i.layers {
			n[l.chain]++
		}
	}
	return n
}

// list returns the names in a directory; none if the directory does not exist.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read layer cache: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// hidden reports whether a file is still being written.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }
