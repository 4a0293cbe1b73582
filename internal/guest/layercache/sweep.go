package layercache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// leftovers lists the leftovers of boxes that died while they published:
// layers without a record, unfinished records, partly written files. A live box
// may use a layer without a record, if its publish failed half-way.
// The caller holds the lock exclusively.
func (c *pruner) leftovers(seed tree, holders []holder) ([]string, error) {
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

// unfinished lists the partly written files of a directory.
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
func (c *pruner) sweep(seed tree, holders []holder) (int, error) {
	found, err := c.leftovers(seed, holders)
	for _, p := range found {
		err = errors.Join(err, c.Discard(p))
	}
	return len(found), errors.Join(err, c.unlinkNames(seed))
}

// unlinkNames removes the short names of deleted layers.
func (c *pruner) unlinkNames(seed tree) error {
	names, err := list(seed.layers("l"))
	for _, n := range names {
		if _, serr := os.Stat(seed.layers("l", n)); errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(seed.layers("l", n)))
		}
	}
	return err
}
