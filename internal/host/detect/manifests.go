package detect

import (
	"regexp"
	"strings"
)

// manifests reads what package managers and version managers go by.
func (d *detector) manifests() {
	versions := toolVersions{d}
	versions.read()
	given := d.Setup // by an input that says all of it
	for _, ecosystem := range []func(){
		nodeFiles{d}.read, goFiles{d}.read, pythonFiles{d}.read, d.rust, d.jvm, d.ruby, d.php,
	} {
		ecosystem()
	}
	if len(given) > 0 {
		d.Setup = given
	}
	versions.needs()
	if len(d.Validate) == 0 {
		d.makefile()
	}
	for _, h := range d.hints {
		d.tool(h.At, h.Name, h.Version)
	}
}

// versionFiles hold one version each, on their first line.
var versionFiles = []struct{ file, tool string }{
	{".nvmrc", "node"},
	{".node-version", "node"},
	{".python-version", "python"},
	{".ruby-version", "ruby"},
	{".java-version", "java"},
	{".go-version", "go"},
	{".php-version", "php"},
}

var (
	toolLine   = regexp.MustCompile(`(?m)^([a-z][a-z-]*)[ \t]+(\S+)`)
	miseLine   = regexp.MustCompile(`(?m)^"?([a-z][a-z0-9-]*)"?\s*=\s*"([^"\n]+)"`)
	rustTOML   = regexp.MustCompile(`(?m)^\s*channel\s*=\s*"([^"\n]+)"`)
	miseTables = regexp.MustCompile(`(?m)^\[([^\]\n]+)\]`)
)

// toolNames are the tools of version managers, by the names that these use.
var toolNames = map[string]string{
	"nodejs": "node", "node": "node", "golang": "go", "go": "go", "python": "python", "ruby": "ruby", "java": "java", "rust": "rust",
	"php": "php", "pnpm": "pnpm", "yarn": "yarn", "bun": "bun", "uv": "uv", "poetry": "poetry", "npm": "npm", "deno": "deno",
	"maven": "maven", "gradle": "gradle",
}

// toolVersions reads the files that name versions, those of all tools first.
type toolVersions struct{ *detector }

func (d toolVersions) read() {
	if f := d.open(".tool-versions"); f != nil {
		for _, m := range toolLine.FindAllStringSubmatchIndex(f.text, maxLines) {
			if tool := toolNames[f.text[m[2]:m[3]]]; tool != "" {
				d.tool(f.at(m[0]), tool, f.text[m[4]:m[5]])
			}
		}
	}
	if f := d.first("mise.toml", ".mise.toml"); f != nil {
		d.mise(f)
	}
	for _, v := range versionFiles {
		if f := d.open(v.file); f != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(f.text), "\n")
			d.tool(f.at(0), v.tool, strings.TrimPrefix(strings.TrimSpace(line), "v"))
		}
	}
	if f := d.open("rust-toolchain.toml"); f != nil {
		if m := rustTOML.FindStringSubmatch(f.text); m != nil {
			d.tool(f.find(rustTOML), "rust", m[1])
		}
	} else if f := d.open("rust-toolchain"); f != nil {
		d.tool(f.at(0), "rust", strings.TrimSpace(f.text))
	}
}

func (d toolVersions) mise(f *file) {
	tables := miseTables.FindAllStringSubmatchIndex(f.text, maxLines)
	for i, t := range tables {
		if f.text[t[2]:t[3]] != "tools" {
			continue
		}
		end := len(f.text)
		if i+1 < len(tables) {
			end = tables[i+1][0]
		}
		for _, m := range miseLine.FindAllStringSubmatchIndex(f.text[t[1]:end], maxLines) {
			section := f.text[t[1]:end]
			if tool := toolNames[section[m[2]:m[3]]]; tool != "" {
				d.tool(f.at(t[1]+m[0]), tool, section[m[4]:m[5]])
			}
		}
	}
}
