// Package presets reads the presets in which code can run: the built-in ones, those of the user's file, and artifacts in a
// directory. It reloads them when they change and keeps the last valid ones.
package presets

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// Options say where presets are.
type Options struct {
	// File is the user's. Only a Named one has to exist.
	File  string
	Named bool
	// Dir has artifacts: directories, or links to them. It does not have to exist.
	Dir    string
	Getenv func(string) string
	// Warn, if non-nil, receives one line for each unusable or overridden preset.
	Warn func(string)
}

// Problem is the reason why a preset cannot be used.
type Problem struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Err    error  `json:"-"`
	Reason string `json:"reason"`
}

func (p Problem) Error() string { return fmt.Sprintf("preset %s (%s): %v", p.Name, p.Source, p.Err) }

func (p Problem) Unwrap() error { return p.Err }

// Registry has the presets. Its methods may be called concurrently.
type Registry struct {
	o Options

	mu       sync.Mutex
	all      []code.Preset
	problems []Problem
	seen     map[string]fileVersion
	looked   time.Time
}

// lookEvery is the minimum time between two checks for changes.
const lookEvery = time.Second

// Open reads the presets. The error has all mistakes of the file; the registry then has the presets without it.
func Open(o Options) (*Registry, error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	r := &Registry{o: o, all: code.BuiltinPresets()}
	_, err := r.Reload()
	return r, err
}

// Reload reloads the presets and reports whether they changed. After an error the former ones stay.
func (r *Registry) Reload() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload()
}

func (r *Registry) reload() (changed bool, err error) {
	l := loader{o: r.o, names: map[string]code.Preset{}, seen: map[string]fileVersion{}}
	for _, p := range code.BuiltinPresets() {
		l.names[p.Name] = p
	}
	l.scan()
	l.look(r.o.File)
	if err := l.readFile(r.o.File); err != nil {
		r.seen, r.looked = l.seen, time.Now() // until it changes again
		return false, fmt.Errorf("read presets: %w", err)
	}
	all := byName(l.names)
	changed = !slices.EqualFunc(all, r.all, equal)
	r.all, r.problems, r.seen, r.looked = all, l.problems, l.seen, time.Now()
	for _, w := range l.warnings {
		r.o.Warn(w)
	}
	return changed, nil
}

func equal(a, b code.Preset) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }

// Refresh reloads the presets if one of their files has changed, and reports whether they changed. After an
// error, which Refresh returns once per change, the former ones stay.
func (r *Registry) Refresh() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < lookEvery {
		return false, nil
	}
	r.looked = time.Now()
	l := loader{o: r.o, seen: map[string]fileVersion{}}
	for path := range r.seen {
		l.look(path)
	}
	if maps.Equal(l.seen, r.seen) {
		return false, nil
	}
	return r.reload()
}

// Presets returns the presets, sorted by name.
func (r *Registry) Presets() []code.Preset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Problems returns the presets that cannot be used, with the reasons.
func (r *Registry) Problems() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.problems)
}

// Problem returns why a preset cannot be used; nil if no unusable one has the name.
func (r *Registry) Problem(name string) error {
	for _, p := range r.Problems() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// loader reads once.
type loader struct {
	o        Options
	names    map[string]code.Preset
	problems []Problem
	warnings []string
	seen     map[string]fileVersion
}

func (l *loader) look(path string) { l.seen[path] = look(path) }

func (l *loader) lookIn(dir string) {
	for _, f := range artifact.Files {
		l.look(filepath.Join(dir, filepath.FromSlash(f)))
	}
}

func (l *loader) problem(name, source string, err error) {
	p := Problem{name, source, err, err.Error()}
	l.problems = append(l.problems, p)
	l.warnings = append(l.warnings, strings.ReplaceAll(p.Error(), "\n", "; "))
}

// add adds a preset. It overrides a former one of the same name.
func (l *loader) add(e code.Preset) {
	if old, ok := l.names[e.Name]; ok {
		l.warnings = append(l.warnings, fmt.Sprintf("preset %s of %s overrides that of %s", e.Name, e.Source, old.Source))
	}
	l.names[e.Name] = e
	if e.Source != l.o.File {
		return
	}
	// The file's preset is used instead of an unusable artifact of that name.
	l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool { return p.Name == e.Name })
}

// Scan reads the artifacts of a directory only.
func Scan(dir string) ([]code.Preset, []Problem) {
	l := loader{o: Options{Dir: dir}, names: map[string]code.Preset{}, seen: map[string]fileVersion{}}
	l.scan()
	return byName(l.names), l.problems
}

func byName(names map[string]code.Preset) []code.Preset {
	return slices.SortedFunc(maps.Values(names), func(a, b code.Preset) int { return strings.Compare(a.Name, b.Name) })
}

// scan reads the artifacts of the directory.
func (l *loader) scan() {
	l.look(l.o.Dir)
	list, err := os.ReadDir(l.o.Dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.warnings = append(l.warnings, fmt.Sprintf("read presets: %v", err))
		}
		return
	}
	for _, f := range list {
		dir := filepath.Join(l.o.Dir, f.Name())
		if st, err := os.Stat(dir); strings.HasPrefix(f.Name(), ".") || err == nil && !st.IsDir() {
			continue
		}
		l.lookIn(dir)
		p, err := artifact.Read(dir)
		if err != nil {
			l.problem(f.Name(), dir, err)
			continue
		}
		l.add(p)
	}
}
