package detect

import (
	"slices"
	"strings"
)

// ecosystems are in the order of setup and checks. Each has a file of its own.
func ecosystems() []*ecosystem {
	return []*ecosystem{&node, &deno, &golang, &python, &rust, &maven, &gradle, &ruby, &php, &elixir, &cmake, &dotnet, &makefiles}
}

// part is an ecosystem in one directory.
type part struct {
	eco    *ecosystem
	d      *detector
	label  string // for the names of checks where several ecosystems share a directory
	setup  []Item
	checks []found
	// covers reports whether a command covers all of the part; nil means that any whole command does.
	covers func(command string) bool
	// broken reports a manifest that its tools cannot read.
	broken bool
	// late adds setup that depends on what the chosen jobs install.
	late func(jobs []*job)
	all  string // for Go, the packages of all modules
}

// found is a check of a part.
type found struct {
	verdict
	text    string // as a job has it
	at      Position
	job     *job // nil for the convention
	i       int  // the command of the job
	env     []Var
	install string // how setup installs its program
}

// partOf returns an ecosystem of a directory; nil if it was not read.
func (s *source) partOf(eco *ecosystem, dir string) *part {
	if i := slices.IndexFunc(s.order, func(p *part) bool { return p.eco == eco && p.d.dir == dir }); i >= 0 {
		return s.order[i]
	}
	return nil
}

// part reads an ecosystem of a directory, once.
func (s *source) part(eco *ecosystem, dir string) *part {
	if p := s.partOf(eco, dir); p != nil {
		return p
	}
	p := &part{eco: eco, d: &detector{s, dir}, label: eco.name}
	if dir != "." {
		versionFiles(p.d)
	}
	s.order = append(s.order, p)
	eco.hooks().read(p.d, p)
	return p
}

func (p *part) install(at Position, commands ...string) {
	for _, c := range commands {
		p.setup = append(p.setup, Item{in(p.d.dir, c), at})
	}
}

// convention adds a command of the ecosystem's convention, unless it must not run.
func (p *part) convention(at Position, command string) {
	v := p.d.classify(command, 0)
	if !v.kind.judges() {
		p.d.omit(at, command, "%s", v.why)
		return
	}
	v.eco, v.narrow = p.eco, false
	p.checks = append(p.checks, found{verdict: v, at: at})
}

func (p *part) add(at Position, k kind, command string) {
	p.checks = append(p.checks, found{verdict: verdict{eco: p.eco, kind: k, command: command, tool: p.label}, at: at})
}

// present reports whether a directory has a manifest of an ecosystem.
func (d *detector) present(eco *ecosystem) bool { return len(d.names(".", eco.files...)) > 0 }

const (
	// maxDepth bounds how deep manifests are looked for.
	maxDepth = 3
	// maxDirs bounds the directories that are listed.
	maxDirs = 300
)

// manifestDirs lists the directories below the root that have a manifest, the nearest first.
func (s *source) manifestDirs() []string {
	if s.dirs != nil {
		return s.dirs
	}
	s.dirs = []string{}
	level := []string{"."}
	for depth, seen := 0, 0; depth < maxDepth; depth++ {
		var next []string
		for _, parent := range level {
			for _, dir := range s.subdirs(parent) {
				if seen++; seen > maxDirs {
					return s.dirs
				}
				next = append(next, dir)
				here := &detector{s, dir}
				if slices.ContainsFunc(ecosystems(), func(e *ecosystem) bool {
					return !slices.Contains([]*ecosystem{&makefiles, &cmake, &dotnet}, e) && here.present(e)
				}) {
					s.dirs = append(s.dirs, dir)
				}
			}
		}
		level = next
	}
	return s.dirs
}

// manifestFile returns the position of a manifest of the directory.
func (d *detector) manifestFile() Position {
	for _, eco := range ecosystems() {
		if names := d.names(".", eco.files...); len(names) > 0 {
			return d.whole(names[0])
		}
	}
	return d.whole(".")
}

// helpers are names of directories that do not hold the project itself.
var helpers = strings.Fields(`doc docs documentation website site example examples sample samples demo demos playground playgrounds
	tools tool scripts hack ci benchmark benchmarks bench e2e test tests integration templates template contrib extras fuzz misc release
	internal doctests testing integration-tests integration_tests`)

// helper reports whether a directory, or one above it, helps the project.
func helper(dir string) bool {
	names := strings.Split(dir, "/")
	return slices.ContainsFunc(names[:len(names)-1], func(n string) bool { return n != "internal" && slices.Contains(helpers, n) }) ||
		slices.Contains(helpers, names[len(names)-1]) && dir != "internal"
}

// roots reads the ecosystems of the root; without one, those of the directories that hold the project's parts.
func (d *detector) roots() {
	for _, eco := range ecosystems() {
		if eco != &makefiles && d.present(eco) {
			d.part(eco, ".")
		}
	}
	if len(d.order) > 0 || d.foreignBuild() {
		return
	}
	const most = 4
	n := 0
	for _, dir := range d.manifestDirs() {
		if strings.Contains(dir, "/") || helper(dir) || strings.HasPrefix(dir, "-") {
			continue
		}
		if n++; n > most {
			d.omit(Position{File: dir}, dir, "only the first %d directories with manifests are read", most)
			return
		}
		for _, eco := range ecosystems() {
			if eco != &makefiles && (&detector{d.source, dir}).present(eco) {
				d.part(eco, dir)
			}
		}
	}
}

// member marks a directory as part of another directory's project.
func (s *source) member(dir string) { s.members = append(s.members, dir) }

// unread names manifests, languages and stores that were recognized and not used.
func (d *detector) unread() {
	for _, u := range foreign {
		for _, name := range d.names(".", u.files...) {
			d.omit(Position{File: name}, name, "%s", u.why)
			if u.test != "" && len(d.Validate) == 0 {
				d.suggest(Position{File: name}, "test", u.test)
			}
		}
	}
	d.buildsBelow()
	omitLFS(d)
	var others []string
	for _, dir := range d.manifestDirs() {
		used := func(p *part) bool { return p.d.dir == dir }
		inside := func(m string) bool { return dir == m || strings.HasPrefix(dir, m+"/") }
		if !slices.ContainsFunc(d.order, used) && !slices.ContainsFunc(d.members, inside) {
			others = append(others, dir)
		}
	}
	if len(others) > 0 {
		d.omit((&detector{d.source, others[0]}).manifestFile(), strings.Join(others, ", "),
			"they are projects of their own, which no pipeline tests; a project file can name their checks")
	}
}
