package detect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	// maker stands before versions of Java, and before those of Ruby in files of its own: temurin-21.0.2.
	maker = regexp.MustCompile(`^(?:ruby|temurin|openjdk|corretto|liberica|microsoft|adoptopenjdk|semeru|sapmachine)-(?:jdk-)?([0-9])`)
	// zulu has numbers of its own behind Java's.
	zulu  = regexp.MustCompile(`^zulu-(?:jre-)?([0-9]+)\..*$`)
	blank = regexp.MustCompile(`\s+`)
)

// tool adds a version, unless one of that tool is there.
func (d *collector) tool(at Position, name, version string) {
	version = blank.ReplaceAllString(strings.TrimSpace(version), " ")
	version = maker.ReplaceAllString(zulu.ReplaceAllString(version, "$1"), "$1")
	if version == "" || !workorder.ValidTool(name) || slices.ContainsFunc(d.Tools, func(t Tool) bool { return t.Name == name }) {
		return
	}
	if _, err := versionrange.Parse(version); err != nil || !workorder.ValidToolVersion(version) {
		d.omit(at, "tools."+name, "its version cannot be read")
		return
	}
	d.Tools = append(d.Tools, Tool{name, version, at})
}

// hint is a version that counts where no file of the repository's own names one.
func (d *collector) hint(at Position, tool, version string) { hintTo(&d.hints, at, tool, version) }

func hintTo(to *[]Tool, at Position, tool, version string) {
	if len(*to) < maxList {
		*to = append(*to, Tool{tool, version, at})
	}
}

// matched adds a hint of what a file says by the first group of an expression, behind a prefix.
func (d toolVersions) matched(f *file, re *regexp.Regexp, tool, prefix string) {
	if f == nil {
		return
	}
	if m := re.FindStringSubmatch(f.text); m != nil {
		d.hint(f.find(re), tool, prefix+m[1])
	}
}

var (
	rustNeeds   = regexp.MustCompile(`(?m)^rust-version\s*=\s*"([0-9][^"\n]*)"`)
	pomRelease  = regexp.MustCompile(`<(?:maven\.compiler\.(?:release|target)|java\.version|release)>\s*(?:1\.)?([0-9]{1,2})\s*</`)
	gradleJava  = regexp.MustCompile(`JavaLanguageVersion\.of\(\s*"?([0-9]{1,2})"?\s*\)|jvmToolchain\(\s*([0-9]{1,2})\s*\)`)
	gemfileRuby = regexp.MustCompile(`(?m)^ruby\s*\(?\s*["']([^"'\n]+)["']`)
	runtimeText = regexp.MustCompile(`(?m)^python-([0-9][0-9.]*)\s*$`)
)

// needs takes what manifests say of the versions that they work with.
func (d toolVersions) needs() {
	d.matched(d.open("runtime.txt"), runtimeText, "python", "")
	d.matched(d.open("Cargo.toml"), rustNeeds, "rust", ">=")
	d.matched(d.open("pom.xml"), pomRelease, "java", ">=")
	if f := d.first("build.gradle.kts", "build.gradle"); f != nil {
		if m := gradleJava.FindStringSubmatch(f.text); m != nil {
			d.hint(f.find(gradleJava), "java", m[1]+m[2])
		}
	}
	d.matched(d.open("Gemfile"), gemfileRuby, "ruby", "")
}
