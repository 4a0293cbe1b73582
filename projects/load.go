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

// DefaultFile is the project file of the folder it lies in.
const DefaultFile = ".sandbox-agent.yaml"

// builtin is how places of the shipped examples are shown.
const builtin = "built-in:"

// LoadOptions says where projects are looked for.
type LoadOptions struct {
	// Dir is the folder the user is in; relative paths start there.
	Dir string
	// Folders are further project folders, in order of precedence.
	Folders []string
	// UserDir is the user's project folder; empty means none.
	UserDir string
	// Home is what ~ stands for.
	Home string
}

// SystemOptions reads the options from the process: working folder, home,
// SANDBOX_AGENT_PROJECTS (a list of folders) and the user's configuration folder.
func SystemOptions() (LoadOptions, error) {
	dir, err := os.Getwd()
	if err != nil {
		return LoadOptions{}, fmt.Errorf("find the current directory: %w", err)
	}
	o := LoadOptions{Dir: dir, Folders: filepath.SplitList(os.Getenv("SANDBOX_AGENT_PROJECTS"))}
	// Both may be missing, as in a minimal container: then ~ and the user's folder mean nothing.
	o.Home, _ = os.UserHomeDir()
	if c, err := os.UserConfigDir(); err == nil {
		o.UserDir = filepath.Join(c, "sandbox-agent", "projects")
	}
	return o, nil
}

// NotFoundError says that there is no such project.
type NotFoundError struct {
	Ref    string
	Looked []string // places that were tried
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

// NotFoundHint is what to do about a project that is not found.
const NotFoundHint = "make one with `sandbox-agent project init`"

// ExitCode is the exit code of the CLI for this error.
func (e *NotFoundError) ExitCode() int { return workorder.ExitNoProject }

// Load finds, reads and checks a project. ref is a path (it contains a
// separator or ends in .yaml or .yml), a name, or empty for the project of the
// current folder. The error is a *NotFoundError or an *InvalidError where it is one.
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

// Parse checks the content of a project file; file is its place as shown.
func Parse(file string, content []byte, opts LoadOptions) (*Project, error) {
	p := &Project{File: file, Dir: folderOf(file, opts.Dir), options: opts, content: content}
	var problems diag.List
	p.tree, problems = parse(file, content)
	if len(problems) > 0 {
		return nil, &InvalidError{File: file, Problems: problems}
	}
	bind(p)
	return p, nil
}

// Detected is a project without a file: content was found in the repository at dir, an absolute path.
func Detected(dir string, content []byte) (*Project, error) {
	p, err := Parse(filepath.Join(dir, DefaultFile), content, LoadOptions{Dir: dir})
	if err == nil {
		p.Detected = true
	}
	return p, err
}

// folderOf is where relative paths in a project file start.
func folderOf(file, dir string) string {
	if strings.HasPrefix(file, builtin) {
		return dir
	}
	return filepath.Dir(git.AbsPath(file, dir, ""))
}

// parse decodes a document. The tree is only complete when there are no problems.
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

// find returns the file a reference means, and its content. found says that its place was not named, and is none of the
// user's own folders either: it came with the content of the current directory.
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
	// The project file of this folder answers to the name it gives itself.
	if content, err := readFile(DefaultFile, opts); err == nil && nameOf(content) == ref {
		return DefaultFile, content, true, nil
	}
	looked = append(looked, DefaultFile+" (by its name)")
	if content, err := Example(ref); err == nil {
		return builtin + ref, content, false, nil
	}
	return "", nil, false, &NotFoundError{Ref: ref, Looked: looked, Near: near(ref, opts)}
}

// upwards is the default project file as it is reached from dir: in it, or in a
// folder above it, up to the top of the repository that dir lies in.
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
			return DefaultFile // no repository: only the folder itself counts
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

// candidates are the places a name may be found at, best first.
func candidates(name string, opts LoadOptions) []string {
	var all []string
	for _, dir := range folders(opts) {
		for _, ext := range extensions {
			all = append(all, filepath.Join(dir, name+ext))
		}
	}
	return all
}

// here are the folders of the current one in which a name is looked for first.
var here = []string{".sandbox-agent", "projects"}

var extensions = []string{".yaml", ".yml"}

func folders(opts LoadOptions) []string {
	dirs := append(slices.Clone(here), opts.Folders...)
	if opts.UserDir != "" {
		dirs = append(dirs, opts.UserDir)
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return d == "" })
}

// Names lists the user's projects that can be named, sorted.
func Names(opts LoadOptions) []string {
	var names []string
	for _, dir := range folders(opts) {
		// A folder that is not there has no projects.
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

// near lists the projects that exist, the nearest name first.
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

// nameOf reads the name of a project that may be broken otherwise.
func nameOf(content []byte) string {
	var n struct{ Name string }
	if len(content) > yamlkeys.MaxFile || yaml.Unmarshal(content, &n) != nil {
		return ""
	}
	return n.Name
}
