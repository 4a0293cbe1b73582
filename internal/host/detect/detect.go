// Package detect finds in the files of a repository what a project file would say of it: tools, packages, services, setup, checks,
// development server. It parses files of a bounded size and runs nothing; each finding names the file and line that it comes from.
package detect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Draft is a project file to be. Its lists are in the order in which they are to be written.
type Draft struct {
	Name string
	// Remote is the URL of the folder's origin, and Branch its checked-out branch; empty if unknown.
	Remote, Branch string

	Tools    []Tool
	Packages []Item
	Services []Service
	Env      []Var
	Setup    []Item
	Validate []Check
	Dev      *Dev
	// Suggested are checks that a text for people names. No run takes them unasked.
	Suggested []Check
	// Omitted are parts that cannot be used.
	Omitted []Omitted
}

// Position is a finding's file and line. Line counts from 1; 0 means the whole file.
type Position struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
}

func (p Position) String() string {
	file := text.Printable(p.File) // on one line, whatever it is: it stands in comments of the project file
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, p.Line)
}

// Item is a text with its place: a command or a package.
type Item struct {
	Text string
	At   Position
}

// Tool is a version that the repository asks for, as it is written there.
type Tool struct {
	Name, Version string
	At            Position
}

// Check is a command that judges the work.
type Check struct {
	Name, Command string
	At            Position
}

// Var is a variable of the environment.
type Var struct {
	Name, Value string
	At          Position
}

// Dev is the development server.
type Dev struct {
	Command string
	Port    int
	Guessed bool // the port is the usual one of the tool, and was not read
	At      Position
}

// Omitted is a part that was left out.
type Omitted struct {
	What, Reason string
	At           Position
}

const (
	// maxFile bounds what is read of one file: manifests and workflows are far smaller.
	maxFile = 1 << 20
	// maxWorkflows bounds how many workflows are read; repositories with more have them for other things than checks.
	maxWorkflows = 40
	// maxList bounds each list of a draft, so that a hostile file makes no endless one.
	maxList = 40
	// maxPackages bounds the packages, of which a project with a browser or a desktop asks for some dozens.
	maxPackages = 200
)

// collector adds findings to a draft: each once, and within bounds.
type collector struct {
	*Draft
	ports []int    // that the repository says it serves on
	hints []Tool   // versions that count where no version file has one
	aside []Tool   // those of jobs beside the checks, which count where nothing else has one
	many  []string // tools that a job of a workflow has in several versions
}

type files struct {
	*collector
	tree  fs.FS
	cache map[string]*file
}

// detector looks at one tree. The types that embed it read one kind of file each.
type detector struct {
	files
	ctx  context.Context // of the one call of Detect
	node *packageJSON
	// targets are those of the Makefile; nil until they were asked for.
	targets map[string]Position
}

func newDetector(ctx context.Context, tree fs.FS, draft *Draft) *detector {
	return &detector{ctx: ctx, files: files{collector: &collector{Draft: draft}, tree: tree, cache: map[string]*file{}}}
}

type file struct {
	name string
	text string
	ends []int // of its lines, once they are asked for
}

// Detect looks at the files of a repository. name is the repository's, for the project.
func Detect(ctx context.Context, tree fs.FS, name string) *Draft {
	d := newDetector(ctx, tree, &Draft{Name: ProjectName(name)})
	d.git()
	// A later input only fills what the earlier ones left open.
	for _, input := range []func(){
		devContainer{d}.read, composeFiles{d}.read, githubActions{d}.read, gitlabCI{d}.read, d.manifests, d.member, d.advice,
		pythonFiles{d}.activate,
	} {
		input()
	}
	for _, t := range d.aside {
		if !slices.Contains(d.many, t.Name) {
			d.tool(t.At, t.Name, t.Version)
		}
	}
	d.submodules()
	return d.Draft
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// ProjectName makes a name for a project of that of a folder.
func ProjectName(folder string) string {
	const longest = 63 // of a project's name
	n := strings.Trim(unfit.ReplaceAllString(folder, "-"), "-._")
	n = n[:min(len(n), longest)]
	if n == "" {
		return "my-project"
	}
	return n
}

// open reads a file; nil if it is absent, no regular file or too large, and the last is said.
func (d *files) open(name string) *file {
	if f, known := d.cache[name]; known {
		return f
	}
	f, err := readFile(d.tree, name)
	d.cache[name] = f
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.omit(Position{File: name}, name, err.Error())
	}
	return f
}

var errTooLarge = errors.New("it is larger than 1 MB")

func readFile(tree fs.FS, name string) (*file, error) {
	st, err := fs.Stat(tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && linked(tree, name):
		return nil, errors.New("it lies below a link or a submodule, which is not followed")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, errors.New("it cannot be read, or is a link that leads out of the repository")
	case st.IsDir():
		return nil, fs.ErrNotExist
	case !st.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
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
	return &file{name: name, text: string(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")))}, nil
}

// first is the first of several files that is there.
func (d *files) first(names ...string) *file {
	for _, n := range names {
		if f := d.open(n); f != nil {
			return f
		}
	}
	return nil
}

// has reports whether a regular file is there, of any size.
func (d *files) has(name string) bool {
	st, err := fs.Stat(d.tree, name)
	return err == nil && st.Mode().IsRegular()
}

// names lists the files of a folder that end so, sorted.
func (d *files) names(folder string, ends ...string) (names []string) {
	entries, err := fs.ReadDir(d.tree, folder)
	if err != nil {
		return nil
	}
	for _, e := range d.plainNames(folder, entries) {
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(e.Name(), end) }) {
			names = append(names, path.Join(folder, e.Name()))
		}
	}
	return names
}

func (f *file) at(offset int) Position {
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

// find is the line of the first match, else of the file as a whole.
func (f *file) find(re *regexp.Regexp) Position {
	if m := re.FindStringIndex(f.text); m != nil {
		return f.at(m[0])
	}
	return Position{File: f.name}
}

func (d *collector) omit(at Position, what, why string) {
	if len(d.Omitted) < maxList {
		d.Omitted = append(d.Omitted, Omitted{What: said(what), Reason: said(why), At: at})
	}
}

// said is a text of the repository or of a parser as a part of one line.
func said(s string) string {
	const longest = 300 // of characters: parsers repeat what they do not understand
	return text.Words(text.Name(s, longest))
}

func (d *collector) setup(at Position, commands ...string) {
	for _, c := range commands {
		c = d.apt(at, c)
		if len(d.Setup) < maxList && usable(c) {
			d.Setup = append(d.Setup, Item{c, at})
		}
	}
}

func (d *collector) need(at Position, packages ...string) {
	for _, p := range packages {
		if slices.ContainsFunc(d.Packages, func(i Item) bool { return i.Text == p }) {
			continue
		}
		if len(d.Packages) == maxPackages {
			d.omit(at, "packages", fmt.Sprintf("only the first %d are taken", maxPackages))
			return
		}
		d.Packages = append(d.Packages, Item{p, at})
	}
}

// check adds a command that judges, unless one of that name is there.
func (d *collector) check(at Position, name, command string) {
	known := func(c Check) bool { return c.Name == name || c.Command == command }
	if len(d.Validate) < maxList && usable(command) && !slices.ContainsFunc(d.Validate, known) {
		d.Validate = append(d.Validate, Check{name, command, at})
	}
}

// longestCommand is what a project file takes without becoming unreadable; longer ones are scripts of their own.
const longestCommand = 4000

// usable reports whether a text can be a command of a project file.
func usable(command string) bool {
	return strings.TrimSpace(command) != "" && len(command) <= longestCommand && !strings.ContainsFunc(command, func(r rune) bool {
		return r != '\n' && r != '\t' && text.IsControl(r) || r == '\uFFFD'
	})
}

// sortedKeys are the keys of a map in an order that does not change.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
