// Package detect derives from the files of a repository what a project file would say: tools, packages, services, setup, checks and the
// development server. It parses files of bounded size and runs nothing. Each finding and each omission names a file and a line.
//
// The conventions of the ecosystems come first, at the root and in its workspaces; pipelines only refine them. An ecosystem is a row of
// ecosystems: its manifests, the commands that its tools have, and a function that reads its files.
package detect

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Draft is the content of a project file. Its lists are in the order of the file.
type Draft struct {
	Name string
	// Remote is the URL of the directory's origin, and Branch its checked-out branch; empty if unknown.
	Remote, Branch string

	Tools    []Tool
	Packages []Item
	Browser  Position // of a dependency that drives a browser; zero if there is none
	Services []Service
	Env      []Var
	Setup    []Item
	Validate []Check
	Dev      *Dev
	// Suggested are checks that no run takes by itself.
	Suggested []Check
	// Omitted are the parts that were recognized and not used.
	Omitted []Omitted
}

// Position is where a finding was read. Line counts from 1; 0 means the whole file.
type Position struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
}

func (p Position) String() string {
	file := text.Printable(p.File) // one line: it is written into comments of the project file
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, p.Line)
}

// Item is a command or a package.
type Item struct {
	Text string
	At   Position
}

// Tool is a requested version, as written in the repository.
type Tool struct {
	Name, Version string
	At            Position
}

// Check is a command that judges the work.
type Check struct {
	Name, Command string
	At            Position
}

// Var is an environment variable.
type Var struct {
	Name, Value string
	At          Position
}

// Dev is the development server.
type Dev struct {
	Command string
	Port    int
	Guessed bool // the port is the framework's default
	At      Position
}

// Omitted is a part that was not used.
type Omitted struct {
	What   string   `json:"what"`
	Reason string   `json:"reason"`
	At     Position `json:"at,omitzero"`
}

const (
	// maxList bounds each list of a draft.
	maxList = 40
	// maxOmitted bounds the omissions.
	maxOmitted = 200
	// maxPackages bounds the packages, of which a project with a browser or a desktop has dozens.
	maxPackages = 200
)

// collector adds findings to a draft: each once, and within bounds.
type collector struct {
	*Draft
	// ports are those that the dev container forwards, and builtPorts those of services that are built from the repository.
	ports, builtPorts []int
	// hints are requested versions by falling trust; a version file comes before all of them.
	hints [hintLevels][]Tool
}

const (
	hintPipeline = iota // the one version of the jobs that judge
	hintDev             // the dev container's
	hintManifest        // what a manifest works with
	hintMatrix          // several versions of a matrix
	hintAside           // jobs that do not judge
	hintLevels
)

// detector reads the files of one directory of the repository.
type detector struct {
	*source
	dir string
}

// Detect reads a repository. name is the directory's name, which becomes the project's.
func Detect(tree fs.FS, name string) *Draft {
	s := &source{collector: &collector{Draft: &Draft{Name: ProjectName(name)}}, tree: tree, cache: map[string]*file{}}
	d := &detector{s, "."}
	readGit(d)
	s.jobs = append(githubActions{d}.jobs(), gitlabCI{d}.jobs()...)
	dev := devContainer{detector: d}
	dev.parse()
	versionFiles(d)
	d.roots()
	plan := newPlan(d, s.jobs)
	plan.checks()
	plan.versions()
	leads := plan.leads()
	if !leads {
		dev.environment()
		dev.services()
	}
	plan.environment()
	plan.services(dev.compose != nil)
	if leads {
		dev.environment()
		dev.services()
	}
	d.withoutSecrets()
	plan.setup(dev.commands())
	plan.left()
	settlePort(d)
	for _, level := range d.hints {
		for _, h := range level {
			d.tool(h.At, h.Name, h.Version)
		}
	}
	d.drivesBrowser()
	readAdvice(d)
	d.unread()
	return d.Draft
}

var unfit = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// ProjectName derives a project's name from a directory's.
func ProjectName(dir string) string {
	if n := shortName(dir); n != "" {
		return n
	}
	return "my-project"
}

// shortName replaces what the names of projects and checks must not contain.
func shortName(s string) string {
	const longest = 63
	n := strings.Trim(unfit.ReplaceAllString(s, "-"), "-._")
	return n[:min(len(n), longest)]
}

func (d *collector) omit(at Position, what, format string, a ...any) {
	o := Omitted{What: oneLine(what), Reason: oneLine(fmt.Sprintf(format, a...)), At: at}
	switch {
	case slices.Contains(d.Omitted, o):
	case len(d.Omitted) == maxOmitted:
		d.Omitted = append(d.Omitted, Omitted{What: "more", Reason: "only the first parts that are left out are named"})
	case len(d.Omitted) < maxOmitted:
		d.Omitted = append(d.Omitted, o)
	}
}

// oneLine makes a text of the repository or of a parser part of a line.
func oneLine(s string) string {
	const longest = 300 // characters: parsers repeat their input
	return text.Words(text.Name(s, longest))
}

func (d *collector) setup(at Position, commands ...string) {
	for _, c := range commands {
		same := func(i Item) bool { return i.Text == c }
		if len(d.Setup) < maxList && usable(c) && !slices.ContainsFunc(d.Setup, same) {
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
			d.omit(at, "packages", "only the first %d are taken", maxPackages)
			return
		}
		d.Packages = append(d.Packages, Item{p, at})
	}
}

// suggest adds a check that the draft does not have.
func (d *collector) suggest(at Position, name, command string) {
	known := func(c Check) bool { return c.Command == command || c.Name == name }
	again := func(c Check) bool { return c.Command == command }
	if len(d.Suggested) < maxList && !slices.ContainsFunc(d.Validate, known) && !slices.ContainsFunc(d.Suggested, again) {
		d.Suggested = append(d.Suggested, Check{name, command, at})
	}
}

// longestCommand bounds a command of a project file, in bytes.
const longestCommand = 4000

// usable reports whether a text can be a command of a project file.
func usable(command string) bool {
	return strings.TrimSpace(command) != "" && len(command) <= longestCommand && !strings.ContainsFunc(command, func(r rune) bool {
		return r != '\n' && r != '\t' && text.IsControl(r) || r == '\uFFFD'
	})
}

// sortedKeys returns the keys of a map in a stable order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// in makes a command run in a directory of the repository.
func in(dir, command string) string {
	if dir == "." || dir == "" {
		return command
	}
	return text.Shell("cd", path.Clean(dir)) + " && " + command
}
