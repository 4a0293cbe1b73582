package detect

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// maxFile bounds the size of a file, in bytes.
const maxFile = 1 << 20

// source is a repository, and what was read of it.
type source struct {
	*collector

	tree  fs.FS
	cache map[string]*file
	order []*part
	dirs  []string // with a manifest, at most maxDepth deep
	// members are directories that belong to the project of another one, and patterns name those of workspaces.
	members, patterns []string
	toxEnv            string   // that a pipeline runs
	served            bool     // a workflow of another repository has a server
	hatched           bool     // a pipeline runs "hatch test"
	pip               string   // what pipelines install with pip
	programs          []string // that actions of pipelines install
	steps             []step   // of the setup job of a pipeline
	jobs              []*job
}

type file struct {
	name string
	text string
	ends []int // of its lines, once needed
}

// open returns a file of the directory; nil if it is absent, not regular or too large, and the last two are omissions.
func (d *detector) open(name string) *file { return d.at(path.Join(d.dir, name)) }

// at returns a file by its path in the repository.
func (s *source) at(name string) *file {
	if f, known := s.cache[name]; known {
		return f
	}
	f, err := readFile(s.tree, name)
	s.cache[name] = f
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.omit(Position{File: name}, name, "%v", err)
	}
	return f
}

var errTooLarge = errors.New("it is larger than 1 MB")

func readFile(tree fs.FS, name string) (*file, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrNotExist
	}
	st, err := fs.Stat(tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && linked(tree, name):
		return nil, errors.New("it is below a symbolic link or a submodule, which is not followed")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, errors.New("it cannot be read, or is a symbolic link that leads out of the repository")
	case st.IsDir():
		return nil, fs.ErrNotExist
	case !st.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case st.Size() > maxFile:
		return nil, errTooLarge
	}
	f, err := tree.Open(name)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, errors.New("it cannot be read")
	case len(b) > maxFile:
		return nil, errTooLarge
	}
	b = bytes.TrimPrefix(b, []byte("\uFEFF"))
	return &file{name: name, text: string(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")))}, nil
}

// decode reads a file of YAML into values, as far as it has their form. It reports false for a file that is no YAML or too large.
func (s *source) decode(f *file, into ...any) bool {
	if len(f.text) > maxWorkflow {
		s.omit(Position{File: f.name}, f.name, "it is larger than 256 kB")
		return false
	}
	var bounded any // decoding bounds what aliases multiply, which nodes do not
	if err := yaml.Unmarshal([]byte(f.text), &bounded); err != nil {
		s.omit(Position{File: f.name}, f.name, "%v", err)
		return false
	}
	for _, v := range into {
		_ = yaml.Unmarshal([]byte(f.text), v)
	}
	return true
}

// first returns the first of several files that exists.
func (d *detector) first(names ...string) *file {
	for _, n := range names {
		if f := d.open(n); f != nil {
			return f
		}
	}
	return nil
}

// has reports whether a regular file exists, of any size.
func (d *detector) has(name string) bool {
	name = path.Join(d.dir, name)
	st, err := fs.Stat(d.tree, name)
	return err == nil && st.Mode().IsRegular()
}

// isDir reports whether the repository has a directory.
func (s *source) isDir(dir string) bool {
	st, err := fs.Stat(s.tree, dir)
	return fs.ValidPath(dir) && err == nil && st.IsDir()
}

// names lists the files of a directory that match a pattern of path.Match, sorted.
func (d *detector) names(dir string, patterns ...string) (names []string) {
	entries, err := fs.ReadDir(d.tree, path.Join(d.dir, dir))
	if err != nil {
		return nil
	}
	for _, e := range d.plainNames(path.Join(d.dir, dir), entries) {
		for _, p := range patterns {
			if ok, _ := path.Match(p, e.Name()); ok && !e.IsDir() {
				names = append(names, path.Join(dir, e.Name()))
			}
		}
	}
	return names
}

// subdirs lists the directories of a directory without hidden ones, as paths in the repository.
func (s *source) subdirs(dir string) (dirs []string) {
	const most = 200
	entries, err := fs.ReadDir(s.tree, dir)
	if err != nil {
		return nil
	}
	for _, e := range s.plainNames(dir, entries) {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(foreignDirs, e.Name()) && len(dirs) < most {
			dirs = append(dirs, path.Join(dir, e.Name()))
		}
	}
	return dirs
}

// below is the first file of a directory, or of those below it, that matches a pattern of path.Match; empty if there is none.
func (s *source) below(dir string, depth int, patterns ...string) string {
	if names := (&detector{s, dir}).names(".", patterns...); len(names) > 0 {
		return path.Join(dir, names[0])
	}
	if depth == 2*maxDepth {
		return ""
	}
	for _, sub := range s.subdirs(dir) {
		if name := s.below(sub, depth+1, patterns...); name != "" {
			return name
		}
	}
	return ""
}

// foreignDirs hold code of others, outputs, or inputs of tests.
var foreignDirs = []string{"node_modules", "vendor", "third_party", "testdata", "fixtures", "target", "dist", "build", "deps"}

func (f *file) line(offset int) Position {
	if f.ends == nil {
		f.ends = []int{}
		for i := range len(f.text) {
			if f.text[i] == '\n' {
				f.ends = append(f.ends, i)
			}
		}
	}
	before, _ := slices.BinarySearch(f.ends, offset)
	return Position{File: f.name, Line: 1 + before}
}

// find returns the line of the first match, otherwise the whole file.
func (f *file) find(re *lazyregexp.Pattern) Position {
	if m := re.FindStringIndex(f.text); m != nil {
		return f.line(m[0])
	}
	return Position{File: f.name}
}

// whole returns the position of a file of the directory.
func (d *detector) whole(name string) Position { return Position{File: path.Join(d.dir, name)} }
