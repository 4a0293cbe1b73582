package trust

import (
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

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// folder of the state folder in which a yes is remembered, a file each.
const folder = "trust"

// Book remembers the files that the user trusts.
type Book struct{ dir string }

// Open returns the book of a state folder. Nothing is made before something is written.
func Open(stateDir string) *Book { return &Book{filepath.Join(stateDir, folder)} }

// Entry is a yes of the user's: to this content, at this place. The same content in another repository gives what it asks for
// to other code.
type Entry struct {
	File string    `json:"file"` // in its folder, which is without links
	Sum  string    `json:"sum"`
	At   time.Time `json:"at"`
	Asks []Ask     `json:"asks"`
}

func (b *Book) path(file string) string {
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(b.dir, hex.EncodeToString(sum[:16])+".json")
}

// Look returns what was said of a file, nil when nothing was.
func (b *Book) Look(file string) (*Entry, error) {
	e, err := read(b.path(place(file)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.File != place(file) {
		return nil, nil
	}
	return e, err
}

func read(path string) (*Entry, error) {
	c, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read who is trusted: %w", err)
	}
	var e Entry
	if err := json.Unmarshal(c, &e); err != nil {
		return nil, fmt.Errorf("read who is trusted: %s: %w", path, err)
	}
	return &e, nil
}

// Trust remembers a yes.
func (b *Book) Trust(file, sum string, asks []Ask, now time.Time) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("remember that %s is trusted: %w", file, err)
	}
	e := Entry{File: place(file), Sum: sum, At: now.UTC(), Asks: append([]Ask{}, asks...)}
	c, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return store.WriteFile(b.path(e.File), append(c, '\n'), 0o600)
}

// Revoke forgets what was said of a file, and reports whether anything was.
func (b *Book) Revoke(file string) (bool, error) {
	err := os.Remove(b.path(place(file)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List returns every entry, by file.
func (b *Book) List() (list []Entry, err error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list who is trusted: %w", err)
	}
	var errs []error
	for _, f := range entries {
		if !strings.HasSuffix(f.Name(), ".json") || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		e, err := read(filepath.Join(b.dir, f.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.File, b.File) })
	return list, errors.Join(errs...)
}

// Covers reports whether the user was shown all of what is asked for: flags may have made it less when he said yes.
func (e *Entry) Covers(asks []Ask) bool {
	return !slices.ContainsFunc(asks, func(a Ask) bool {
		return !slices.ContainsFunc(e.Asks, func(was Ask) bool { return was.Key == a.Key && was.Value == a.Value })
	})
}
