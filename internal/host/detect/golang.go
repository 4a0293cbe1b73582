package detect

import "regexp"

var (
	goLine        = regexp.MustCompile(`(?m)^go\s+([0-9]\S*)`)
	toolchainLine = regexp.MustCompile(`(?m)^toolchain\s+go([0-9]\S*)`)
)

// golang takes what go.mod says. It asks for a version or a later one.
func (d *detector) golang() {
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
