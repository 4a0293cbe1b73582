package layercache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// imageStore is the image store of a data root: the seed's or a run's.
type imageStore struct{ root string }

func (t imageStore) layers(p ...string) string {
	return filepath.Join(append([]string{t.root, driver}, p...)...)
}

func (t imageStore) meta(p ...string) string {
	return filepath.Join(append([]string{t.root, "image", driver}, p...)...)
}
func (t imageStore) record(chain string) string { return t.meta("layerdb", "sha256", chain) }
func (t imageStore) config(image string) string { return t.meta("imagedb", "content", "sha256", image) }

// cacheID returns the directory of a layer, "" if the tree lacks the layer.
func (t imageStore) cacheID(chain string) string {
	b, err := os.ReadFile(filepath.Join(t.record(chain), "cache-id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// parent returns the layer below, "" for the lowest.
func (t imageStore) parent(chain string) string {
	b, err := os.ReadFile(filepath.Join(t.record(chain), "parent"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(b)), "sha256:")
}

// sound reports whether the layer and all below it exist.
func (t imageStore) sound(chain string) bool {
	for ; chain != ""; chain = t.parent(chain) {
		id := t.cacheID(chain)
		if st, err := os.Lstat(t.layers(id, "diff")); id == "" || err != nil || !st.IsDir() {
			return false
		}
	}
	return true
}

// repositories is the engine's list of names: repository -> reference -> image id.
type repositories struct {
	Repositories map[string]map[string]string
}

func (t imageStore) names() (repositories, error) {
	r := repositories{Repositories: map[string]map[string]string{}}
	b, err := os.ReadFile(t.meta("repositories.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read image names: %w", err)
	}
	return r, nil
}

func (t imageStore) setNames(r repositories) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(t.meta("repositories.json"), b, 0o600)
}

func (r repositories) add(from repositories) {
	for repo, refs := range from.Repositories {
		if r.Repositories[repo] == nil {
			r.Repositories[repo] = map[string]string{}
		}
		maps.Copy(r.Repositories[repo], refs)
	}
}

// only keeps the repositories of the wanted images.
func (r repositories) only(images []string) repositories {
	out := repositories{Repositories: map[string]map[string]string{}}
	for _, name := range images {
		ref, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			continue // the engine reports a better error when the image is requested
		}
		want := reference.FamiliarString(reference.TagNameOnly(ref))
		repo := reference.FamiliarName(ref)
		id, ok := r.Repositories[repo][want]
		if !ok {
			continue
		}
		if out.Repositories[repo] == nil { // two tags of one repository are wanted
			out.Repositories[repo] = map[string]string{}
		}
		for ref, other := range r.Repositories[repo] {
			if other == id { // with its digests
				out.Repositories[repo][ref] = id
			}
		}
	}
	return out
}

func (r repositories) lacks(images []string) bool {
	return slices.ContainsFunc(images, func(name string) bool { return len(r.only([]string{name}).Repositories) == 0 })
}

// ids returns the images that have a name, without algorithm, each once.
func (r repositories) ids() []string {
	set := map[string]bool{}
	for _, refs := range r.Repositories {
		for _, id := range refs {
			set[strings.TrimPrefix(id, "sha256:")] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// layer is one layer of an image by its content and by its position in the chain.
type layer struct {
	diff  string // digest of the content, without algorithm
	chain string // digest of the content and all below it
}

// chain lists an image's layers from the bottom.
func (t imageStore) chain(image string) ([]layer, error) {
	b, err := os.ReadFile(t.config(image))
	if err != nil {
		return nil, err
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("read configuration of image %s: %w", image, err)
	}
	var all []layer
	parent := ""
	for _, d := range config.RootFS.DiffIDs {
		id := d
		if parent != "" {
			sum := sha256.Sum256([]byte(parent + " " + d))
			id = "sha256:" + hex.EncodeToString(sum[:])
		}
		parent = id
		all = append(all, layer{diff: strings.TrimPrefix(d, "sha256:"), chain: strings.TrimPrefix(id, "sha256:")})
	}
	return all, nil
}

// describe copies an image's metadata, the configuration last, because it makes the image exist.
func describe(from, to imageStore, image string, layers []layer) error {
	for _, p := range []string{
		"imagedb/content/sha256", "imagedb/metadata/sha256", "layerdb/sha256",
		"distribution/diffid-by-digest/sha256", "distribution/v2metadata-by-diffid/sha256",
	} {
		if err := os.MkdirAll(to.meta(p), 0o700); err != nil {
			return err
		}
	}
	for _, l := range layers {
		if err := describeSource(from, to, l); err != nil {
			return err
		}
	}
	extra, err := os.ReadDir(from.meta("imagedb", "metadata", "sha256", image))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range extra {
		p := filepath.Join("imagedb", "metadata", "sha256", image)
		if err := errors.Join(mkdirs(to.meta(p)), copyFile(from.meta(p, e.Name()), to.meta(p, e.Name()))); err != nil {
			return err
		}
	}
	return copyFile(from.config(image), to.config(image))
}

// describeSource copies a layer's registry and digest; loaded layers have none.
func describeSource(from, to imageStore, l layer) error {
	src := filepath.Join("distribution", "v2metadata-by-diffid", "sha256", l.diff)
	b, err := os.ReadFile(from.meta(src))
	if err != nil {
		return nil
	}
	if err := copyFile(from.meta(src), to.meta(src)); err != nil {
		return err
	}
	var sources []struct{ Digest string }
	if json.Unmarshal(b, &sources) != nil {
		return nil
	}
	for _, s := range sources {
		d := filepath.Join("distribution", "diffid-by-digest", "sha256", strings.TrimPrefix(s.Digest, "sha256:"))
		if err := copyFile(from.meta(d), to.meta(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

type seedContent struct {
	seed   imageStore
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

func (i image) unused() time.Time {
	if i.used.After(i.published) {
		return i.used
	}
	return i.published
}

func (c *diskCache) content() (*seedContent, error) {
	s := &seedContent{seed: imageStore{c.seed()}, records: map[string]string{}}
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

func (c *diskCache) image(s *seedContent, id string, names []string) image {
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
		dir := s.records[l.chain]
		if dir == "" {
			i.problem = "its layer " + l.chain + " is missing"
		} else if st, err := os.Lstat(s.seed.layers(dir, "diff")); err != nil || !st.IsDir() {
			i.problem = "the content of its layer " + l.chain + " is missing"
		}
	}
	return i
}

// top returns the directory of the image's last layer, "" if it has none.
func (s *seedContent) top(i image) string {
	if len(i.layers) == 0 {
		return ""
	}
	return s.records[i.layers[len(i.layers)-1].chain]
}

func (s *seedContent) report(i image, used map[string]int, holders []layerUser) workorder.CacheImage {
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
func (s *seedContent) size(chain string) int64 {
	b, _ := os.ReadFile(filepath.Join(s.seed.record(chain), "size"))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

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

func hidden(name string) bool { return strings.HasPrefix(name, ".") }
