package snapshots

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
)

// passing are parts of a repository that change without a wish of setup's: git writes them when it looks, and objects do nothing without a name.
var passing = []string{"index", "objects", "logs", "FETCH_HEAD", "ORIG_HEAD", "gc.log", "gc.pid"}

// maxApart bounds the files of a folder apart that are looked at: a repository has some dozen, and refs.
const maxApart = 100_000

// note remembers how the folders apart are, of which nothing is kept: the repository.
func (s *Store) note() { s.apartAt = s.lookApart() }

// settled reports whether setup did nothing in the folders apart: a hook, a setting or a tag that it made there is not in the next box.
func (s *Store) settled() bool { return s.apartAt == s.lookApart() }

// lookApart sums up names, modes, sizes and times. What cannot be looked at is never the same twice.
func (s *Store) lookApart() string {
	h, n := sha256.New(), 0
	for _, l := range s.kept() {
		for _, a := range l.Apart {
			top := s.at("apart", l.Name, a)
			err := untrusted.Walk(top, func(path string, info fs.FileInfo, err error) error {
				if n++; err == nil && n > maxApart {
					err = fmt.Errorf("it has more than %d files", maxApart)
				}
				if err != nil || path == top {
					return err
				}
				return apart(h, strings.TrimPrefix(path, top+"/"), info)
			})
			if err != nil {
				return rand.Text()
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// apart writes what counts of a file.
func apart(w io.Writer, name string, info fs.FileInfo) error {
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
