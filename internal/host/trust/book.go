package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/projects"
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
	File string    `json:"file"` // as it is, without links
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
	e, err := read(b.path(realPath(file)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && e.File != realPath(file) {
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
	e := Entry{File: realPath(file), Sum: sum, At: now.UTC(), Asks: append([]Ask{}, asks...)}
	c, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return store.WriteFile(b.path(e.File), append(c, '\n'), 0o600)
}

// Revoke forgets what was said of a file, and reports whether anything was.
func (b *Book) Revoke(file string) (bool, error) {
	err := os.Remove(b.path(realPath(file)))
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

// maxScript bounds what is read of a file that a command names: a program that is larger is no script of a repository's.
const maxScript = 16 << 20

// Sum names the content: the file, what its commands name of the repository, which would run unread, and what its secret files are, which may be links.
// cwd is where commands run.
func Sum(p *projects.Project, cwd string) string {
	h := sha256.New()
	add := func(what string, content []byte) {
		fmt.Fprintf(h, "%d %s %d\n", len(what), what, len(content))
		h.Write(content)
	}
	add("project", p.Content())
	top := Top(p.Dir)
	if top == "" {
		top = p.Dir
	}
	for _, s := range p.Secrets {
		switch s.Scheme {
		case projects.SecretFile:
			add("file "+s.Name, []byte(realPath(s.Target)))
		case projects.SecretCmd:
			for _, word := range strings.FieldsFunc(s.Target, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`;|&<>(){}$=,", r) }) {
				for _, base := range []string{cwd, p.Dir} {
					name := word
					if !filepath.IsAbs(name) {
						name = filepath.Join(base, name)
					}
					if c, ok := script(name); ok && Inside(name, top) {
						add("script "+name, c)
					}
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// script is the content of a regular file.
func script(name string) ([]byte, bool) {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() {
		return nil, false
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	c, err := io.ReadAll(io.LimitReader(f, maxScript))
	return c, err == nil
}

// Covers reports whether the user was shown all of what is asked for: flags may have made it less when he said yes.
func (e *Entry) Covers(asks []Ask) bool {
	return !slices.ContainsFunc(asks, func(a Ask) bool {
		return !slices.ContainsFunc(e.Asks, func(was Ask) bool { return was.Key == a.Key && was.Value == a.Value })
	})
}
