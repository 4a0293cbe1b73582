package setupcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
)

// entries holds all snapshots of a volume. The directory is locked.
type entries struct{ dir *cachevolume.Dir }

// bound removes unneeded snapshots: all but each project's newest, or all on a nearly full disk without other live boxes.
func (s entries) bound(alive bool) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir.Base, &st); err != nil {
		return err
	}
	most := keptPerProject
	if !alive && st.Bavail*uint64(st.Bsize) < lowDisk {
		most = 0
	}
	_, err := s.prune(func(rank int, _ time.Time) bool { return rank < most }, false)
	return err
}

type removed struct {
	Meta
	dir string
}

// prune removes snapshots that keep rejects, except those below a kept one or a live box. rank counts from a project's
// newest; used is when a box last took it.
func (s entries) prune(keep func(rank int, used time.Time) bool, dryRun bool) (gone []removed, err error) {
	needed, err := s.used()
	if err != nil {
		return nil, err
	}
	err = s.each(func(dir string, all []Meta) error {
		known := map[string]Meta{}
		for rank, m := range all {
			known[m.ID] = m
			if fi, err := os.Stat(filepath.Join(dir, m.ID)); err == nil && keep(rank, fi.ModTime()) {
				for _, id := range m.needs() {
					needed[id] = true
				}
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			m, whole := known[e.Name()]
			if needed[e.Name()] || !whole && s.recent(e) {
				continue
			}
			m.ID = e.Name()
			gone = append(gone, removed{m, filepath.Join(dir, e.Name())})
			if dryRun {
				continue
			}
			if err := s.dir.Discard(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		return nil
	})
	return gone, err
}

// each calls do with each project's directory and its complete snapshots, newest first.
func (s entries) each(do func(dir string, all []Meta) error) error {
	projects, err := os.ReadDir(s.dir.Path("kept"))
	if err != nil {
		return err
	}
	for _, p := range projects {
		dir := s.dir.Path("kept", p.Name())
		all, err := project(dir)
		if err == nil {
			err = do(dir, all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// halfMade is how long a snapshot without a description may belong to a box that is writing it.
const halfMade = 10 * time.Minute

func (s entries) recent(e fs.DirEntry) bool {
	fi, err := e.Info()
	return err == nil && time.Since(fi.ModTime()) < halfMade
}

// used returns the snapshots that live boxes have below them.
func (s entries) used() (map[string]bool, error) {
	live, err := s.dir.Live()
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, run := range live {
		b, err := os.ReadFile(s.dir.Path("runs", run, usesFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the snapshots in use by the sandbox %s: %w", run, err)
		}
		for id := range strings.FieldsSeq(string(b)) {
			ids[id] = true
		}
	}
	return ids, nil
}
