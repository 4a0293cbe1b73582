package detect

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// manifestFiles are files that make a folder the root of something to be built.
var manifestFiles = []string{
	"package.json", "go.mod", "go.work", "pyproject.toml", "requirements.txt", "setup.py", "Pipfile", "Cargo.toml",
	"pom.xml", "build.gradle", "build.gradle.kts", "Gemfile", "composer.json",
}

// member takes what the manifests of the one folder say that has any, where the root has none. Its commands run there, and its checks
// are called by it.
func (d *detector) member() {
	if slices.ContainsFunc(manifestFiles, d.has) {
		return
	}
	const shown = 8
	var found []string
	for _, dir := range d.folders(".") {
		if len(found) > shown {
			break
		}
		if slices.ContainsFunc(manifestFiles, func(m string) bool { return d.has(path.Join(dir, m)) }) {
			found = append(found, dir)
		}
	}
	if len(found) > 1 {
		names := strings.Join(found[:min(len(found), shown)], ", ")
		d.omit(Position{File: found[0]}, "manifests",
			"several folders have one and the root has none ("+names+"): a project file says which count")
	}
	if len(found) != 1 {
		return
	}
	d.below(found[0])
}

// below looks at the manifests of one folder.
func (d *detector) below(dir string) {
	if strings.HasPrefix(dir, "-") {
		d.omit(Position{File: dir}, "manifests", "the name of their folder is no argument of cd")
		return
	}
	in := newDetector(d.ctx, folder{d.tree, dir}, &Draft{})
	in.ports = d.ports
	in.manifests()
	at := func(p Position) Position { p.File = path.Join(dir, p.File); return p }
	there := text.Shell("cd", dir) + " && "
	for _, t := range in.Tools {
		d.tool(at(t.At), t.Name, t.Version)
	}
	for _, p := range in.Packages {
		d.need(at(p.At), p.Text)
	}
	for _, v := range in.Env {
		d.variable(at(v.At), "env."+v.Name, v.Name, v.Value)
	}
	if len(d.Setup) == 0 { // by an input that says all of it
		for _, s := range in.Setup {
			d.setup(at(s.At), there+s.Text)
		}
	}
	for _, c := range in.Validate {
		d.check(at(c.At), checkName(dir+"-"+c.Name), there+c.Command)
	}
	for _, l := range in.Omitted {
		d.omit(at(l.At), l.What, l.Reason)
	}
	if d.Dev == nil && in.Dev != nil {
		dev := *in.Dev
		dev.Command, dev.At = there+dev.Command, at(dev.At)
		d.Dev = &dev
	}
}

// folder is a folder of a tree. (fs.Sub of a tree has no Stat of its own, and would open what it is asked about.)
type folder struct {
	fs.FS
	dir string
}

func (w folder) Open(name string) (fs.File, error) { return w.FS.Open(path.Join(w.dir, name)) }

func (w folder) Stat(name string) (fs.FileInfo, error) { return fs.Stat(w.FS, path.Join(w.dir, name)) }

func (w folder) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(w.FS, path.Join(w.dir, name))
}
