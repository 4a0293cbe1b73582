package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// decisionsDir is the directory of trust decisions in the state directory, one file each.
const decisionsDir = "trust"

// Store stores which project files the user trusts.
type Store struct{ dir string }

// Open returns the store of a state directory. The first write creates its directory.
func Open(stateDir string) *Store { return &Store{filepath.Join(stateDir, decisionsDir)} }

// Entry is the user's trust in this content at this path. The same content elsewhere would give its requests to other
// code. A link in one repository to the file of another does not share that file's trust.
type Entry struct {
	File        string       `json:"file"`           // as it was found, with links
	Real        string       `json:"real,omitempty"` // without links, if that is another path
	Sum         string       `json:"sum"`
	At          time.Time    `json:"at"`
	Permissions []Permission `json:"asks"`
}

func (s *Store) path(file string) string {
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16])+".json")
}

// Lookup returns the entry of a file, or nil if there is none.
func (s *Store) Lookup(file string) (*Entry, error) {
	file = localrepo.AbsPath(file)
	e, err := read(s.path(file))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (e.File != file || !e.PathUnchanged()) {
		return nil, nil
	}
	return e, err
}

// PathUnchanged reports whether the path still leads to the file that the user trusted.
func (e *Entry) PathUnchanged() bool { return localrepo.RealPath(e.File) == cmp.Or(e.Real, e.File) }

func read(path string) (*Entry, error) {
	c, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the trusted files: %w", err)
	}
	var e Entry
	if err := json.Unmarshal(c, &e); err != nil {
		return nil, fmt.Errorf("read the trusted files: %s: %w", path, err)
	}
	return &e, nil
}

// Trust saves an entry.
func (s *Store) Trust(file, sum string, asks []Permission, now time.Time) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("save that %s is trusted: %w", file, err)
	}
	e := NewEntry(file, sum, asks, now)
	c, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return statedir.WriteFile(s.path(e.File), append(c, '\n'), 0o600)
}

// NewEntry returns an entry of the time now.
func NewEntry(file, sum string, asks []Permission, now time.Time) Entry {
	e := Entry{File: localrepo.AbsPath(file), Sum: sum, At: now.UTC(), Permissions: append([]Permission{}, asks...)}
	if to := localrepo.RealPath(file); to != e.File {
		e.Real = to
	}
	return e
}

// Revoke removes the entry of a file and reports whether there was one.
func (s *Store) Revoke(file string) (bool, error) {
	err := os.Remove(s.path(localrepo.AbsPath(file)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List returns all entries, sorted by file. The error names the entries that cannot be read.
func (s *Store) List() (list []Entry, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the trusted files: %w", err)
	}
	var errs []error
	for _, f := range entries {
		if !strings.HasSuffix(f.Name(), ".json") || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		e, err := read(filepath.Join(s.dir, f.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.File, b.File) })
	return list, errors.Join(errs...)
}

// Covers reports whether the user was shown all the requests, which flags may have reduced then.
func (e *Entry) Covers(asks []Permission) bool {
	return !slices.ContainsFunc(asks, func(a Permission) bool {
		return !slices.ContainsFunc(e.Permissions, func(was Permission) bool { return was.Key == a.Key && was.Value == a.Value })
	})
}
