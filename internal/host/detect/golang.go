package detect

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var golang = ecosystem{
	name: "go", files: []string{"go.mod", "go.work"},
	rules: []rule{
		{words: "go test", kind: kindTest, whole: goAll, narrow: goPart},
		{words: "go vet", kind: kindVet, whole: goAll},
		{words: "go build", kind: kindBuild, whole: goAll},
		{words: "go mod download", kind: kindInstall},
		{words: "go mod verify", kind: kindNothing},
		{words: "go get", kind: kindInstall},
		{words: "go install", kind: kindNothing},
		{words: "go mod tidy", kind: kindRefused, why: reasonRewrites},
		{words: "go generate", kind: kindRefused, why: reasonRewrites},
		{words: "gofmt", kind: kindNothing}, // it ends with 0 whatever it finds
	},
}

var (
	// goAll are packages that are all of a module, and goPart arguments that select some of the tests.
	goAll  = lazyregexp.New(`\s(?:\./\.\.\.|all)(?:\s|$)`)
	goPart = lazyregexp.New(`\s--?(?:test\.)?(?:run|bench|fuzz|exec|c|short|skip)(?:[= ]|$)|-tags[= ]\S*(?:e2e|integration)`)
)

var (
	goLine        = lazyregexp.New(`(?m)^go\s+([0-9]\S*)`)
	toolchainLine = lazyregexp.New(`(?m)^toolchain\s+go([0-9]\S*)`)
)

// goFiles reads the files of Go.
type goFiles struct{ *detector }

func readGo(from *detector, p *part) {
	d := goFiles{from}
	packages := d.workspace(p)
	f := d.open("go.mod")
	if packages[0] != "./..." {
		f = d.open("go.work")
	}
	if f == nil {
		return
	}
	if _, err := modfile.ParseLax(f.name, []byte(f.text), nil); err != nil && packages[0] == "./..." {
		d.omit(Position{File: f.name}, f.name, "%v", err)
		p.broken = true
		return
	}
	at := f.find(goLine)
	for _, line := range []*lazyregexp.Pattern{toolchainLine, goLine} {
		if m := line.FindStringSubmatch(f.text); m != nil {
			d.tool(f.find(line), "go", ">="+m[1])
		}
	}
	if !goLine.MatchString(f.text) && len(d.Tools) == 0 {
		d.need(at, "golang-go") // any version
	}
	d.variable(at, "env.GOTOOLCHAIN", "GOTOOLCHAIN", "auto") // distributions keep to the version that they ship
	p.install(at, "go mod download")
	all := strings.Join(packages, " ")
	p.convention(at, "go test "+all)
	p.convention(at, "go vet "+all)
	p.all = all
	if d.dir == "." && d.open("go.work") == nil {
		d.modules()
	}
}

// workspace returns the packages of all modules of a workspace, which `./...` at its root does not cover.
func (d goFiles) workspace(p *part) (packages []string) {
	f := d.open("go.work")
	if f == nil {
		return []string{"./..."}
	}
	work, err := modfile.ParseWork(f.name, []byte(f.text), nil)
	if p.broken = err != nil; p.broken {
		d.omit(Position{File: f.name}, f.name, "%v", err)
		return []string{"./..."}
	}
	uses := work.Use
	if len(uses) > maxList {
		d.omit(Position{f.name, uses[0].Syntax.Start.Line}, f.name, "only its first %d modules are read", maxList)
		uses = uses[:maxList]
	}
	for _, u := range uses {
		dir := path.Clean(u.Path)
		if memberForm.MatchString(dir) && d.has(path.Join(dir, "go.mod")) {
			packages = append(packages, "./"+path.Join(dir, "..."))
			d.member(path.Join(d.dir, dir))
		}
	}
	if len(packages) == 0 {
		return []string{"./..."}
	}
	return packages
}

// modules adds the other modules of the tree that have tests.
func (d goFiles) modules() {
	const most = 6
	n := 0
	for _, dir := range d.manifestDirs() {
		if !(&detector{d.source, dir}).has("go.mod") {
			continue
		}
		switch {
		case helper(dir):
		case d.below(dir, 0, "*_test.go") == "":
			d.member(dir) // nothing to test
		case n == most:
			d.omit(Position{File: path.Join(dir, "go.mod")}, dir, "only the first %d modules are tested", most)
			d.member(dir)
		default:
			d.part(&golang, dir)
			n++
		}
	}
}

// goFlags are flags of the build that derived commands need as well.
var goFlags = lazyregexp.New(`\s(-(?:modfile|mod|tags)=\S+)`)

// goShared returns the flags that every Go command of the pipelines has.
func goShared(commands []string) (shared []string) {
	for i, c := range commands {
		var flags []string
		for _, m := range goFlags.FindAllStringSubmatch(c, -1) {
			flags = append(flags, m[1])
		}
		if i == 0 {
			shared = flags
		}
		shared = slices.DeleteFunc(shared, func(f string) bool { return !slices.Contains(flags, f) })
	}
	return shared
}
