package setupcache

import (
	"cmp"
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

// Save makes a snapshot of the current content of the directories (of temporary files: the content before
// SetAside), and mounts new upper directories of the box above it. Call it after setup, before any code
// that must not write to it. whole means that setup changed nothing outside the directories. why is the reason if
// nothing was stored. After an error the directories are unusable.
func (s *Store) Save(ctx context.Context, whole bool) (why error, err error) {
	kept := s.mounts.dirs
	if len(kept) == 0 || s.matches {
		return nil, nil
	}
	if why := errors.Join(s.CheckQuiet(ctx), s.nothingBeside(ctx)); why != nil {
		return why, nil
	}
	// A hook, a setting or a tag in the separate directories would be missing in the next box.
	whole = whole && s.apartAt == s.mounts.excludedState()
	for i, l := range kept {
		if why := freeze(ctx, s.mounts.path("mounts", l.upper)); why != nil {
			return why, s.mounts.thaw(kept[:i])
		}
	}
	if why := (inspector{&s.mounts, &s.cfg}).check(ctx); why != nil {
		return why, s.mounts.thaw(kept)
	}
	m, why := s.put(whole)
	if why != nil {
		return why, s.mounts.thaw(kept)
	}
	s.under, s.matches = m, true
	for _, l := range kept {
		l.layers = append([]string{m.ID}, l.layers...)
		l.set = ""
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

// SetAside separates later temporary files from those of setup. Called again, it removes the later ones.
func (s *Store) SetAside() error {
	for _, l := range s.mounts.dirs {
		if !l.Scratch {
			continue
		}
		if l.set == "" {
			l.set = l.upper
		}
		if err := s.mounts.remount(l); err != nil {
			return err
		}
	}
	return nil
}

// ClearScratch resets the directories of temporary files to the image's content.
func (s *Store) ClearScratch() error {
	for _, l := range s.mounts.dirs {
		if !l.Scratch {
			continue
		}
		l.layers, l.set = nil, ""
		if err := s.mounts.remount(l); err != nil {
			return err
		}
	}
	return nil
}

// Clear resets the directories as if nothing were stored: a work tree without files, and the image's home. The box
// stores nothing from then on.
func (s *Store) Clear() error {
	s.under, s.matches, s.emptied = nil, false, true
	for _, l := range s.mounts.dirs {
		l.layers, l.set = nil, ""
		if err := s.mounts.remount(l); err != nil {
			return err
		}
	}
	return nil
}

// wrote returns the name of the upper directory with setup's writes.
func (l *mountedDir) wrote() string { return cmp.Or(l.set, l.upper) }

func (s *Store) upper(l *mountedDir) string {
	return filepath.Join("runs", s.cfg.ID, l.wrote(), "upper")
}

// put moves the upper directories to the snapshots, and writes the description last.
func (s *Store) put(whole bool) (m *Meta, err error) {
	id := strings.ToLower(rand.Text()[:12])
	dir := filepath.Join("kept", s.project, id)
	m = &Meta{
		ID: id, Key: s.want.Digest, Tree: s.want.Tree, Layers: map[string][]string{}, Whole: whole,
		Made: time.Now().UTC(), Project: s.want.Project,
	}
	if err := s.root.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store the files of setup: %w", err)
	}
	var moved []*mountedDir
	err = func() error {
		for _, l := range s.mounts.dirs {
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
			m.Layers[l.Name] = l.layers
			if err := s.apart(l, filepath.Join(dir, l.Name)); err != nil {
				return err
			}
		}
		if len(s.attach) > 0 {
			if err := s.root.WriteFile(filepath.Join(dir, attachFile), s.attach, 0o600); err != nil {
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
		return nil, fmt.Errorf("store the files of setup: %w", err)
	}
	return m, nil
}

// usedScratch reports whether setup has written to a scratch directory.
func (s *Store) usedScratch(l *mountedDir) (bool, error) {
	if !l.Scratch {
		return false, nil
	}
	entries, err := os.ReadDir(s.mounts.path("run", l.wrote(), "upper"))
	return len(entries) > 0, err
}

// apart removes the box's own files from a snapshot.
func (s *Store) apart(l *mountedDir, dir string) error {
	for _, a := range l.Apart { // contains only a mount point
		if err := s.root.Remove(filepath.Join(dir, a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, o := range l.Own {
		if err := s.root.Rename(filepath.Join(dir, o), filepath.Join("runs", s.cfg.ID, l.upper, o)); err != nil &&
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
func (s *Store) index(l *mountedDir, dir string) error {
	for _, a := range l.Apart {
		root, err := os.OpenRoot(s.mounts.path("apart", l.Name, a))
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
