package setupcache

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// maxIndex bounds git's index, in bytes: one of a million files has some 100 MiB.
const maxIndex = 128 << 20

// Save makes a snapshot of the current content of the directories, and mounts new upper directories of the box above
// it. Call it after setup, before any code that must not write to it. whole means that setup changed nothing outside
// the directories. why is the reason if nothing was stored. After an error the directories are unusable.
func (s *Store) Save(ctx context.Context, whole bool) (why error, err error) {
	kept := s.mounts.dirs
	if len(kept) == 0 || s.matches {
		return nil, nil
	}
	if why := errors.Join(s.CheckQuiet(ctx), s.nothingBeside(ctx)); why != nil {
		return why, nil
	}
	var from []written
	for _, l := range kept {
		from = append(from, written{l, l.upper, s.mounts.path("apart", l.Name)})
	}
	m := &Meta{
		Tree: s.want.Tree, Layers: map[string][]string{},
		// A hook, a setting or a tag in the separate directories would be missing in the next box.
		Whole: whole && s.apartAt == s.mounts.excludedState(),
	}
	for _, l := range kept {
		m.Layers[l.Name] = l.layers
	}
	if why, err := s.store(ctx, m, from); why != nil || err != nil {
		return why, err
	}
	for _, l := range kept {
		l.layers = append([]string{m.ID}, l.layers...)
		old := l.upper
		if err := s.mounts.remount(l); err != nil {
			return nil, err
		}
		if err := s.carry(l, old); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// KeepFresh adds what was written to the directories of the last clean checkout, of a commit with that tree, to the
// snapshot that they began with. Later clean checkouts of this box begin with both. The directories stay read-only.
func (s *Store) KeepFresh(ctx context.Context, tree string) (why error, err error) {
	m := &Meta{
		Tree: tree, Layers: map[string][]string{}, Whole: s.under.Whole && s.under.Tree == tree, Scratch: s.under.Scratch, Warm: true,
	}
	var from []written
	for _, l := range s.mounts.dirs {
		m.Layers[l.Name] = append([]string{s.under.ID}, s.under.Layers[l.Name]...)
		if name := s.fresh[l.Name]; name != "" && !l.Scratch {
			from = append(from, written{l, name, s.mounts.path("run", name, "upper")})
		}
	}
	if why, err := s.store(ctx, m, from); why != nil || err != nil {
		return why, err
	}
	for _, l := range s.mounts.dirs {
		if !l.Scratch {
			l.layers = append([]string{m.ID}, m.Layers[l.Name]...)
		}
	}
	return nil, nil
}

// written is an upper directory that becomes part of a snapshot.
type written struct {
	*mountedDir
	name  string // of the directory in the run's directory
	apart string // where its separate directories are
}

// store makes a snapshot of upper directories, unless there is a reason not to. After an error the directories are
// unusable.
func (s *Store) store(ctx context.Context, m *Meta, from []written) (why error, err error) {
	for i, l := range from {
		if why := freeze(ctx, s.mounts.path("mounts", l.name)); why != nil {
			return why, s.mounts.thaw(from[:i])
		}
	}
	why = inspector{&s.mounts, &s.cfg}.check(ctx, from)
	if why == nil {
		why = s.put(m, from)
	}
	if why != nil {
		return why, s.mounts.thaw(from)
	}
	s.under, s.matches = m, true
	return nil, nil
}

// Clear resets the directories as if nothing were stored: a work tree without files, and the image's home. The box
// stores nothing from then on.
func (s *Store) Clear() error {
	s.under, s.matches, s.emptied = nil, false, true
	for _, l := range s.mounts.dirs {
		l.layers = nil
		if err := s.mounts.remount(l); err != nil {
			return err
		}
	}
	return nil
}

// upper returns that directory relative to the root of the volume's directory.
func (s *Store) upper(l written) string { return filepath.Join("runs", s.cfg.ID, l.name, "upper") }

// put moves upper directories to the snapshots, and fills in the description m, which is written last: without it
// there is no snapshot.
func (s *Store) put(m *Meta, from []written) (err error) {
	m.ID, m.Key, m.Made = strings.ToLower(rand.Text()[:12]), s.want.Digest, time.Now().UTC()
	m.Project, m.Branch, m.Image = s.want.Project, s.want.Branch, s.want.Image
	dir := filepath.Join("kept", s.project, m.ID)
	if err := s.root.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("store the files of setup: %w", err)
	}
	var moved []written
	err = func() error {
		for _, l := range from {
			if err := s.index(l, dir); err != nil {
				return err
			}
			used, err := s.usedScratch(l)
			if err != nil {
				return err
			}
			m.Scratch = m.Scratch || used
			if err := s.root.Rename(s.upper(l), filepath.Join(dir, l.Name)); err != nil {
				return err
			}
			moved = append(moved, l)
			if err := s.apart(l, filepath.Join(dir, l.Name)); err != nil {
				return err
			}
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := s.root.WriteFile(filepath.Join(dir, ".new"), b, 0o600); err != nil {
			return err
		}
		return s.root.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, metaFile))
	}()
	if err != nil {
		for _, l := range moved {
			err = errors.Join(err, s.root.Rename(filepath.Join(dir, l.Name), s.upper(l)))
		}
		return fmt.Errorf("store the files of setup: %w", err)
	}
	return nil
}

// usedScratch reports whether setup has written to a scratch directory.
func (s *Store) usedScratch(l written) (bool, error) {
	if !l.Scratch {
		return false, nil
	}
	entries, err := os.ReadDir(s.mounts.path("run", l.name, "upper"))
	return len(entries) > 0, err
}

// apart removes the box's own files from a snapshot.
func (s *Store) apart(l written, dir string) error {
	for _, a := range l.Apart { // a mount point, or the repository of a clean checkout
		if err := s.root.RemoveAll(filepath.Join(dir, a)); err != nil {
			return err
		}
	}
	for _, o := range l.Own {
		if err := s.root.Rename(filepath.Join(dir, o), filepath.Join("runs", s.cfg.ID, l.name, o)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// carry copies the box's own files to its new directory.
func (s *Store) carry(l *mountedDir, from string) error {
	for _, o := range l.Own {
		err := copyOwn(filepath.Join(s.mounts.path("run", from), o), filepath.Join(s.mounts.path("mounts", l.upper), o))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s to %s: %w", o, l.Path, err)
		}
	}
	return nil
}

// maxOwn bounds one of the box's own files, in bytes: it has some variables.
const maxOwn = 1 << 20

// copyOwn copies a small file with its owner and mode.
func copyOwn(from, to string) error {
	root, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer root.Close()
	b, err := safeopen.Read(root, filepath.Base(from), nil, maxOwn)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)), f.Chmod(os.FileMode(st.Mode&0o777)), f.Close())
}

// index stores git's index of a work tree, which is separate.
func (s *Store) index(l written, dir string) error {
	for _, a := range l.Apart {
		root, err := os.OpenRoot(filepath.Join(l.apart, a))
		if err != nil {
			return err
		}
		b, err := safeopen.Read(root, indexFile, nil, maxIndex)
		if cerr := root.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.root.WriteFile(filepath.Join(dir, indexFile), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
