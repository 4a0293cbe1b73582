package detect

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	goLine        = regexp.MustCompile(`(?m)^go\s+([0-9]\S*)`)
	toolchainLine = regexp.MustCompile(`(?m)^toolchain\s+go([0-9]\S*)`)
	goUseBlock    = regexp.MustCompile(`(?ms)^use\s*\((.*?)^\s*\)`)
	goUseLine     = regexp.MustCompile(`(?m)^use\s+([^\s(]\S*)`)
	goUseAny      = regexp.MustCompile(`(?m)^use\b`)
	goWorkLine    = regexp.MustCompile(`(?m)^go\s+(\S+)`)
)

type goFiles struct{ *detector }

// read takes a workspace of several Go modules: one setup, and checks of all its modules, which `./...` at its root is not.
func (d goFiles) read() {
	f := d.open("go.work")
	if f == nil {
		d.module()
		return
	}
	text := regexp.MustCompile(`//[^\n]*`).ReplaceAllString(f.text, "")
	var uses []string
	for _, m := range goUseBlock.FindAllStringSubmatch(text, -1) {
		uses = append(uses, strings.Fields(m[1])...)
	}
	for _, m := range goUseLine.FindAllStringSubmatch(text, -1) {
		uses = append(uses, m[1])
	}
	var modules []string
	if len(uses) > maxList {
		d.omit(f.find(goUseAny), f.name, "only its first 40 modules are looked at")
		uses = uses[:maxList]
	}
	for _, u := range uses {
		dir := path.Clean(strings.Trim(u, `"`))
		if memberForm.MatchString(dir) && fs.ValidPath(dir) && d.has(path.Join(dir, "go.mod")) {
			modules = append(modules, "./"+path.Join(dir, "..."))
		}
	}
	if len(modules) == 0 {
		d.module()
		return
	}
	at := f.find(goWorkLine)
	if m := goWorkLine.FindStringSubmatch(text); m != nil {
		d.tool(at, "go", m[1])
	}
	d.check(at, "test", "go test "+strings.Join(modules, " "))
	d.check(at, "vet", "go vet "+strings.Join(modules, " "))
	if d.open("go.mod") == nil {
		d.cache["go.mod"] = f // a workspace needs what a module needs
	}
	d.module()
}

// module takes what go.mod says. It asks for a version or a later one.
func (d goFiles) module() {
	f := d.open("go.mod")
	if f == nil {
		return
	}
	at := f.find(goLine)
	for _, line := range []*regexp.Regexp{toolchainLine, goLine} {
		if m := line.FindStringSubmatch(f.text); m != nil {
			d.tool(f.find(line), "go", ">="+m[1])
		}
	}
	if !goLine.MatchString(f.text) {
		d.need(at, "golang-go") // any version
	}
	d.variable(at, "env.GOTOOLCHAIN", "GOTOOLCHAIN", "auto") // distributions keep to the version that they ship
	d.setup(at, "go mod download")
	d.check(at, "test", "go test ./...")
	d.check(at, "vet", "go vet ./...")
}
