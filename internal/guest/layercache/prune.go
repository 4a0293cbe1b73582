package layercache

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// prune implements Prune for one store, whose exclusive lock the caller holds. A dry run returns the entries.
func (c *pruner) prune(s *workorder.CacheStore, o PruneOptions, now time.Time) (gone []string, err error) {
	st, err := c.content()
	if err != nil {
		return nil, err
	}
	holders, err := c.live()
	if err != nil {
		return nil, err
	}
	keep, drop := choose(st, holders, o, now)
	used := users(st.images)
	for _, i := range drop {
		s.Removed = append(s.Removed, st.report(i, used, holders))
	}
	describeStore(s, st, keep, holders)
	layers := st.unneeded(keep, holders)
	s.RemovedLayers = len(layers)
	s.Layers -= len(layers)
	dead, err := c.Dead()
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		left, err := c.leftovers(st.seed, holders)
		s.Leftovers = len(left) + len(dead)
		gone = append(left, dead...)
		for _, chain := range layers {
			gone = append(gone, st.seed.record(chain))
			if id := st.records[chain]; id != "" {
				gone = append(gone, st.seed.layers(id))
			}
		}
		return gone, err
	}
	if _, err := c.Reap(); err != nil {
		return nil, err
	}
	left, err := c.sweep(st.seed, holders)
	s.Leftovers = left + len(dead)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(c.dropImages(st, keep, drop), c.dropLayers(st, layers), c.dropSources(st.seed, keep))
}

// unneeded returns the layers that no image needs and no live box uses, the upper ones first.
func (s *seedContent) unneeded(keep []image, holders []layerUser) (chains []string) {
	needed := map[string]bool{}
	for chain := range users(keep) {
		needed[chain] = true
	}
	for chain, dir := range s.records {
		if !held(holders, dir) {
			continue
		}
		for ; chain != "" && !needed[chain]; chain = s.seed.parent(chain) {
			needed[chain] = true
		}
	}
	depth := map[string]int{}
	for chain := range s.records {
		if needed[chain] {
			continue
		}
		chains = append(chains, chain)
		for below := chain; below != ""; below = s.seed.parent(below) {
			depth[chain]++
		}
	}
	slices.SortFunc(chains, func(a, b string) int { return cmp.Or(depth[b]-depth[a], strings.Compare(a, b)) })
	return chains
}

// choose decides by image. An image in use stays whole. A damaged one is removed.
func choose(st *seedContent, holders []layerUser, o PruneOptions, now time.Time) (keep, drop []image) {
	for _, i := range st.images {
		top := st.top(i)
		switch {
		case i.problem != "":
			drop = append(drop, i)
		case top != "" && held(holders, top):
			keep = append(keep, i)
		case len(i.names) == 0, now.Sub(i.unused()) >= o.OlderThan:
			drop = append(drop, i)
		default:
			keep = append(keep, i)
		}
	}
	return keep, drop
}

// dropImages removes the names first: boxes ignore an image without one.
func (c *pruner) dropImages(st *seedContent, keep, drop []image) error {
	if len(drop) == 0 {
		return c.dropMarks(keep)
	}
	gone := map[string]bool{}
	for _, i := range drop {
		gone["sha256:"+i.id] = true
	}
	left := repositories{Repositories: map[string]map[string]string{}}
	for repo, refs := range st.names.Repositories {
		for ref, id := range refs {
			if gone[id] {
				continue
			}
			if left.Repositories[repo] == nil {
				left.Repositories[repo] = map[string]string{}
			}
			left.Repositories[repo][ref] = id
		}
	}
	err := st.seed.setNames(left)
	if err != nil {
		return err
	}
	for _, i := range drop {
		err = errors.Join(err, remove(st.seed.config(i.id)), os.RemoveAll(st.seed.meta("imagedb", "metadata", "sha256", i.id)))
	}
	return errors.Join(err, c.dropMarks(keep))
}

func (c *pruner) dropMarks(keep []image) error {
	known := map[string]bool{}
	for _, i := range keep {
		known[i.id] = true
	}
	marks, err := list(c.Path("used"))
	for _, m := range marks {
		if !known[m] {
			err = errors.Join(err, remove(c.Path("used", m)))
		}
	}
	return err
}

// dropLayers removes the records first: boxes ignore a layer without one.
func (c *pruner) dropLayers(st *seedContent, chains []string) (err error) {
	for _, chain := range chains {
		err = errors.Join(err, c.Discard(st.seed.record(chain)))
	}
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if id := st.records[chain]; id != "" {
			if derr := c.Discard(st.seed.layers(id)); !errors.Is(derr, fs.ErrNotExist) {
				err = errors.Join(err, derr)
			}
		}
	}
	return errors.Join(err, c.unlinkNames(st.seed))
}

// dropSources removes the registry records of layers that no longer exist.
func (c *pruner) dropSources(seed imageStore, keep []image) error {
	known := map[string]bool{}
	for _, i := range keep {
		for _, l := range i.layers {
			known[l.diff] = true
		}
	}
	dir := seed.meta("distribution", "v2metadata-by-diffid", "sha256")
	diffs, err := list(dir)
	for _, diff := range diffs {
		if known[diff] {
			continue
		}
		b, rerr := os.ReadFile(filepath.Join(dir, diff))
		err = errors.Join(err, rerr)
		var sources []struct{ Digest string }
		if json.Unmarshal(b, &sources) == nil {
			for _, s := range sources {
				digest := filepath.Base(strings.TrimPrefix(s.Digest, "sha256:"))
				err = errors.Join(err, remove(seed.meta("distribution", "diffid-by-digest", "sha256", digest)))
			}
		}
		err = errors.Join(err, remove(filepath.Join(dir, diff)))
	}
	return err
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// leftovers lists the leftovers of boxes that died while they published: layers without a record, unfinished records,
// partly written files. A live box may use a layer without a record. The caller holds the lock exclusively.
func (c *pruner) leftovers(seed imageStore, holders []layerUser) ([]string, error) {
	known := map[string]bool{"l": true}
	chains, err := list(seed.meta("layerdb", "sha256"))
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		known[seed.cacheID(chain)] = true
	}
	layers, err := list(seed.layers())
	if err != nil {
		return nil, err
	}
	var found []string
	for _, id := range layers {
		if known[id] && id != "l" {
			more, err := unfinished(seed.layers(id))
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		} else if !known[id] && !held(holders, id) {
			found = append(found, seed.layers(id))
		}
	}
	records, err := list(seed.meta("layerdb", "tmp"))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		found = append(found, seed.meta("layerdb", "tmp", r))
	}
	err = filepath.WalkDir(seed.meta(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case path == seed.meta("layerdb"):
			return fs.SkipDir
		case !d.IsDir() && hidden(d.Name()):
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

func unfinished(dir string) (found []string, err error) {
	names, err := list(dir)
	for _, n := range names {
		if hidden(n) {
			found = append(found, filepath.Join(dir, n))
		}
	}
	return found, err
}

// sweep moves leftovers to the trash and reports their number. The caller holds the lock exclusively.
func (c *pruner) sweep(seed imageStore, holders []layerUser) (int, error) {
	found, err := c.leftovers(seed, holders)
	for _, p := range found {
		err = errors.Join(err, c.Discard(p))
	}
	return len(found), errors.Join(err, c.unlinkNames(seed))
}

func (c *pruner) unlinkNames(seed imageStore) error {
	names, err := list(seed.layers("l"))
	for _, n := range names {
		if _, serr := os.Stat(seed.layers("l", n)); errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(seed.layers("l", n)))
		}
	}
	return err
}
