package projects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// DefaultFile is the name of a directory's project file.
const DefaultFile = ".sandbox-agent.yaml"

// builtin is the prefix of the shown paths of built-in projects.
const builtin = "built-in:"

// LoadOptions says where to look for projects.
type LoadOptions struct {
	Dir     string   // the current directory; relative paths count from here
	Dirs    []string // further directories of projects, in order of precedence
	UserDir string   // the user's directory of projects; "" means none
	Home    string   // replaces ~
}

// SystemOptions returns the options of this process: its directories and SANDBOX_AGENT_PROJECTS, a list of directories.
func SystemOptions() (LoadOptions, error) {
	dir, err := os.Getwd()
	if err != nil {
		return LoadOptions{}, fmt.Errorf("find the current directory: %w", err)
	}
	o := LoadOptions{Dir: dir, Dirs: filepath.SplitList(os.Getenv("SANDBOX_AGENT_PROJECTS"))}
	// A minimal container may have neither: ~ and the user's directory are then unavailable.
	o.Home, _ = os.UserHomeDir()
	if c, err := os.UserConfigDir(); err == nil {
		o.UserDir = filepath.Join(c, "sandbox-agent", "projects")
	}
	return o, nil
}

// NotFoundError is returned if there is no such project.
type NotFoundError struct {
	Ref    string
	Looked []string // paths that were tried
	Near   []string // names that exist, nearest first
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	if e.Ref == "" {
		b.WriteString("no project given, and there is none in this directory")
	} else {
		fmt.Fprintf(&b, "project %q not found", e.Ref)
	}
	if len(e.Looked) > 0 {
		b.WriteString("; looked for " + strings.Join(e.Looked, ", "))
	}
	if len(e.Near) > 0 {
		b.WriteString("; known projects: " + strings.Join(e.Near, ", "))
	}
	return b.String()
}

// NotFoundHint is the hint for a project that is not found.
const NotFoundHint = "make one with `sandbox-agent project init`"

// ExitCode is the exit code of the CLI for this error.
func (e *NotFoundError) ExitCode() int { return workorder.ExitNoProject }

// Load finds, reads and checks a project. ref is a path (with a separator or ending in .yaml or .yml), a name, or "" for
// the project of the current directory. The error is a *NotFoundError, an *InvalidError, or a failure to read the file.
func Load(ref string, opts LoadOptions) (*Project, error) {
	file, content, found, err := find(ref, opts)
	if err != nil {
		return nil, err
	}
	p, err := Parse(file, content, opts)
	if err == nil {
		p.Found, p.ByPath = found, ref != "" && isPath(ref)
	}
	return p, err
}

// Parse checks the content of a project file; file is its path as shown. The error is an *InvalidError.
func Parse(file string, content []byte, opts LoadOptions) (*Project, error) {
	p := &Project{File: file, Dir: projectDir(file, opts.Dir), options: opts, content: content}
	var problems diag.List
	p.tree, problems = parse(file, content)
	if len(problems) > 0 {
		return nil, &InvalidError{File: file, Problems: problems}
	}
	bind(p)
	return p, nil
}

// Detected parses a detected project of the repository at dir, an absolute path.
func Detected(dir string, content []byte) (*Project, error) {
	p, err := Parse(filepath.Join(dir, DefaultFile), content, LoadOptions{Dir: dir})
	if err == nil {
		p.Detected = true
	}
	return p, err
}

// projectDir returns the directory from which relative paths in a project file count.
func projectDir(file, dir string) string {
	if strings.HasPrefix(file, builtin) {
		return dir
	}
	return filepath.Dir(git.AbsPath(file, dir, ""))
}

// parse decodes a document. The tree is complete only without problems.
func parse(file string, content []byte) (*value, diag.List) {
	d := yamlkeys.New(file, string(content), definition())
	root, empty := d.Document(content)
	switch {
	case empty:
		d.Report(&yaml.Node{Line: 1, Column: 1}, codeEmpty, "start with `sandbox-agent project init`", "the file is empty")
	case root != nil:
		checkFile(d, root)
	}
	return root, d.Found()
}

// find returns the file of a reference, and its content. found reports that the current directory has the file and the user named no path.
func find(ref string, opts LoadOptions) (file string, content []byte, found bool, err error) {
	if ref == "" || isPath(ref) {
		at := ref
		if ref == "" {
			at = upwards(opts.Dir)
		}
		file, content, err = findPath(at, ref, opts)
		return file, content, ref == "", err
	}
	var looked []string
	for i, c := range candidates(ref, opts) {
		content, err := readFile(c, opts)
		if errors.Is(err, fs.ErrNotExist) {
			looked = append(looked, c)
			continue
		}
		if err != nil {
			return "", nil, false, fmt.Errorf("read project file %s: %w", c, err)
		}
		return c, content, i < len(here)*len(extensions), nil
	}
	// The project file of this directory also has the name in it.
	if content, err := readFile(DefaultFile, opts); err == nil && nameOf(content) == ref {
		return DefaultFile, content, true, nil
	}
	looked = append(looked, DefaultFile+" (by its name)")
	if content, err := Example(ref); err == nil {
		return builtin + ref, content, false, nil
	}
	return "", nil, false, &NotFoundError{Ref: ref, Looked: looked, Near: near(ref, opts)}
}

// upwards returns the default project file in dir or in a parent, up to the root of dir's repository.
func upwards(dir string) string {
	name, found := DefaultFile, ""
	for at := dir; ; at, name = filepath.Dir(at), filepath.Join("..", name) {
		if _, err := os.Stat(filepath.Join(at, DefaultFile)); err == nil && found == "" {
			found = name
		}
		if _, err := os.Stat(filepath.Join(at, ".git")); err == nil && found != "" {
			return found
		}
		if at == filepath.Dir(at) {
			return DefaultFile // without a repository only dir counts
		}
	}
}

func isPath(ref string) bool {
	return strings.ContainsAny(ref, `/\`) || strings.HasSuffix(ref, ".yaml") || strings.HasSuffix(ref, ".yml") || ref == "." || ref == ".."
}

func findPath(path, ref string, opts LoadOptions) (string, []byte, error) {
	full := git.AbsPath(path, opts.Dir, opts.Home)
	if st, err := os.Stat(full); err == nil && st.IsDir() {
		path = filepath.Join(path, DefaultFile)
	}
	content, err := readFile(path, opts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, &NotFoundError{Ref: ref, Looked: []string{path}, Near: near(ref, opts)}
	case err != nil:
		return "", nil, fmt.Errorf("read project file %s: %w", path, err)
	}
	return path, content, nil
}

// candidates returns the paths at which a name may be found, in order of precedence.
func candidates(name string, opts LoadOptions) []string {
	var all []string
	for _, dir := range projectDirs(opts) {
		for _, ext := range extensions {
			all = append(all, filepath.Join(dir, name+ext))
		}
	}
	return all
}

// here are the directories below the current one that come first for a name.
var here = []string{".sandbox-agent", "projects"}

var extensions = []string{".yaml", ".yml"}

func projectDirs(opts LoadOptions) []string {
	dirs := append(slices.Clone(here), opts.Dirs...)
	if opts.UserDir != "" {
		dirs = append(dirs, opts.UserDir)
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return d == "" })
}

// Names returns the names of the user's projects, sorted.
func Names(opts LoadOptions) []string {
	var names []string
	for _, dir := range projectDirs(opts) {
		// A missing directory has no projects.
		entries, _ := os.ReadDir(git.AbsPath(dir, opts.Dir, opts.Home))
		for _, e := range entries {
			if n := e.Name(); strings.HasSuffix(n, ".yaml") || strings.HasSuffix(n, ".yml") {
				names = append(names, strings.TrimSuffix(strings.TrimSuffix(n, ".yaml"), ".yml"))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// near returns the names of existing projects, nearest first.
func near(ref string, opts LoadOptions) []string {
	names := Names(opts)
	if best := diag.Nearest(ref, names); best != "" {
		names = append([]string{best}, slices.DeleteFunc(names, func(n string) bool { return n == best })...)
	}
	const enough = 8 // names in an error message
	return names[:min(len(names), enough)]
}

func readFile(path string, opts LoadOptions) ([]byte, error) {
	return yamlkeys.ReadFile(git.AbsPath(path, opts.Dir, opts.Home))
}

// nameOf reads the name of a project that may be otherwise invalid.
func nameOf(content []byte) string {
	var n struct{ Name string }
	if len(content) > yamlkeys.MaxFile || yaml.Unmarshal(content, &n) != nil {
		return ""
	}
	return n.Name
}
