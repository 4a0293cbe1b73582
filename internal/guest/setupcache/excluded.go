package setupcache

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// passing are parts of a repository that change without setup, or have no effect without a reference.
var passing = []string{"index", "objects", "logs", "FETCH_HEAD", "ORIG_HEAD", "gc.log", "gc.pid"}

// maxApart bounds the examined files of a separate directory: a repository has some dozen, and refs.
const maxApart = 100_000

// note records the state of everything that is not stored: the repository, and files outside the directories.
func (s *Store) note(ctx context.Context) {
	s.apartAt = s.mounts.excludedState()
	if s.cfg.Beside != nil {
		s.beside, _ = s.cfg.Beside(ctx) // nil never equals a recorded state
	}
}

// nothingBeside refuses if setup wrote outside the directories: the next box would not have those files.
func (s *Store) nothingBeside(ctx context.Context) error {
	if s.cfg.Beside == nil {
		return nil
	}
	now, err := s.cfg.Beside(ctx)
	if err != nil {
		return err
	}
	if s.beside == nil {
		return errors.New("files outside the work tree and the home could not be examined before setup")
	}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if now[path] != s.beside[path] {
			return fmt.Errorf("setup wrote %s, which is in none of the stored directories", text.Name(path, maxName))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.beside)) {
		if _, is := now[path]; !is {
			return fmt.Errorf("setup removed %s, which is in none of the stored directories", text.Name(path, maxName))
		}
	}
	return nil
}

// maxName bounds a name that setup chose, in a message.
const maxName = 200

// excludedState returns a digest of the separate directories' entries. An unreadable one never repeats.
func (m *mounts) excludedState() string {
	h, n := sha256.New(), 0
	for _, l := range m.dirs {
		for _, a := range l.Apart {
			top := m.path("apart", l.Name, a)
			err := safeopen.Walk(top, func(path string, info fs.FileInfo, err error) error {
				if n++; err == nil && n > maxApart {
					err = fmt.Errorf("it has more than %d files", maxApart)
				}
				if err != nil || path == top {
					return err
				}
				return describe(h, strings.TrimPrefix(path, top+"/"), info)
			})
			if err != nil {
				return rand.Text()
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// describe writes the relevant properties of a file.
func describe(w io.Writer, name string, info fs.FileInfo) error {
	first, _, _ := strings.Cut(name, "/")
	switch passes := slices.Contains(passing, first); {
	case passes && info.IsDir():
		return filepath.SkipDir
	case passes || strings.HasSuffix(name, ".lock"):
		return nil
	case info.IsDir(): // its time changes with every lock
		fmt.Fprintf(w, "%q %s\n", name, info.Mode())
	default:
		fmt.Fprintf(w, "%q %s %d %d\n", name, info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return nil
}
