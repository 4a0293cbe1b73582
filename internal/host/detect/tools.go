package detect

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	// vendor stands before versions of Java, and before Ruby's in its own files: temurin-21.0.2.
	vendor = lazyregexp.New(`^(?:ruby|temurin|openjdk|corretto|liberica|microsoft|adoptopenjdk|semeru|sapmachine)-(?:jdk-)?([0-9])`)
	// zulu has numbers of its own after Java's.
	zulu = lazyregexp.New(`^zulu-(?:jre-)?([0-9]+)\..*$`)
	// sdkman stands after versions of Java: 21-oracle.
	sdkman = lazyregexp.New(`^([0-9][0-9.]*)-(?:oracle|ms|tem|zulu|amzn|open|librca|sem|graalce)$`)
	blank  = lazyregexp.New(`\s+`)
)

// plainVersion removes what vendors add to a version.
func plainVersion(v string) string {
	v = blank.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(v), "v"), " ")
	v = sdkman.ReplaceAllString(v, "$1")
	return vendor.ReplaceAllString(zulu.ReplaceAllString(v, "$1"), "$1")
}

// tool adds a version, unless the tool has one.
func (d *collector) tool(at Position, name, version string) {
	version = plainVersion(version)
	if version == "" || !workorder.ValidTool(name) || slices.ContainsFunc(d.Tools, func(t Tool) bool { return t.Name == name }) {
		return
	}
	if _, err := versionrange.Parse(version); err != nil || !workorder.ValidToolVersion(version) {
		d.omit(at, "tools."+name, "its version cannot be read")
		return
	}
	d.Tools = append(d.Tools, Tool{name, version, at})
}

// hint adds a version that counts where no version file has one.
func (d *collector) hint(level int, at Position, tool, version string) {
	if len(d.hints[level]) < maxList {
		d.hints[level] = append(d.hints[level], Tool{tool, version, at})
	}
}

// matched adds a hint of the first group of an expression, after a prefix.
func (d *detector) matched(f *file, re *lazyregexp.Pattern, tool, prefix string) {
	if m := re.FindStringSubmatch(f.text); m != nil {
		d.hint(hintManifest, f.find(re), tool, prefix+m[1])
	}
}

// singleVersions are files with a version on their first line.
var singleVersions = []struct{ file, tool string }{
	{".nvmrc", "node"},
	{".node-version", "node"},
	{".python-version", "python"},
	{".ruby-version", "ruby"},
	{".java-version", "java"},
	{".go-version", "go"},
	{".php-version", "php"},
}

var (
	toolLine    = lazyregexp.New(`(?m)^([a-z][a-z-]*)[ \t]+(\S+)`)
	sdkmanLine  = lazyregexp.New(`(?m)^([a-z]+)=(\S+)`)
	miseLine    = lazyregexp.New(`(?m)^"?([a-z][a-z0-9-]*)"?\s*=\s*"([^"\n]+)"`)
	rustTOML    = lazyregexp.New(`(?m)^\s*channel\s*=\s*"([^"\n]+)"`)
	miseTable   = lazyregexp.New(`(?ms)^\[tools\][ \t]*\n(.*?)(?:^\[|\z)`)
	runtimeText = lazyregexp.New(`(?m)^python-([0-9][0-9.]*)\s*$`)
)

// toolNames are the tools of version managers, by the names that these use.
var toolNames = map[string]string{
	"nodejs": "node", "node": "node", "golang": "go", "go": "go", "python": "python", "ruby": "ruby", "java": "java", "rust": "rust",
	"php": "php", "pnpm": "pnpm", "yarn": "yarn", "bun": "bun", "uv": "uv", "poetry": "poetry", "npm": "npm", "deno": "deno",
	"maven": "maven", "gradle": "gradle",
}

// versionFiles reads the files that name versions, those of several tools first.
func versionFiles(d *detector) {
	named := func(f *file, from int, content string, re *lazyregexp.Pattern) {
		for line := range strings.Lines(content) {
			at := f.line(from)
			from += len(line)
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			if m := re.FindStringSubmatch(line); m != nil && toolNames[m[1]] != "" {
				d.tool(at, toolNames[m[1]], m[2])
			} else {
				d.omit(at, line, "it is not a tool that is known, with a version")
			}
		}
	}
	if f := d.open(".tool-versions"); f != nil {
		named(f, 0, f.text, toolLine)
	}
	if f := d.open(".sdkmanrc"); f != nil {
		named(f, 0, f.text, sdkmanLine)
	}
	if f := d.first("mise.toml", ".mise.toml"); f != nil {
		if m := miseTable.FindStringSubmatchIndex(f.text); m != nil {
			named(f, m[2], f.text[m[2]:m[3]], miseLine)
		}
	}
	for _, v := range singleVersions {
		if f := d.open(v.file); f != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(f.text), "\n")
			d.tool(f.line(0), v.tool, line)
		}
	}
	if f := d.open("rust-toolchain.toml"); f != nil {
		if m := rustTOML.FindStringSubmatch(f.text); m != nil {
			d.tool(f.find(rustTOML), "rust", m[1])
		}
	} else if f := d.open("rust-toolchain"); f != nil {
		d.tool(f.line(0), "rust", f.text)
	}
	if f := d.open("runtime.txt"); f != nil {
		d.matched(f, runtimeText, "python", "")
	}
}
