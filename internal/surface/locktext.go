package surface

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// readTOMLLock reads poetry.lock, uv.lock, pdm.lock and Cargo.lock: tables of packages, line by line.
func readTOMLLock(s string) lockOf {
	var out []locked
	part := ""
	for i, l := range splitLines(s) {
		t := strings.TrimSpace(l)
		if m := section.FindStringSubmatch(t); m != nil && t[0] == '[' && !strings.Contains(t, "=") {
			if part = m[1]; part == "package" {
				out = append(out, locked{line: i + 1})
			}
			continue
		}
		if len(out) == 0 {
			continue
		}
		p := &out[len(out)-1]
		key, value, ok := strings.Cut(t, " = ")
		value = strings.Trim(value, `"`)
		switch {
		case ok && part == "package" && key == "name":
			p.name = value
		case ok && part == "package" && key == "version":
			p.version = value
		case ok && part == "package" && key == "source":
			p.source, p.bundled = tomlSource(value)
		case ok && part == "package" && (key == "git" || key == "url"):
			p.source = value
		case ok && part == "package" && key == "checksum":
			p.sums = []string{value}
		case ok && part == "package.source" && key == "url":
			p.source = value
		case part == "metadata" && ok && strings.HasPrefix(key, `"checksum `):
			// Cargo's first format has the checksums at the end; a change is seen by line.
			out = append(out, locked{name: strings.Trim(key, `"`), sums: []string{value}, line: i + 1, bundled: true})
		case fileSum.MatchString(t):
			tomlFiles(t, p)
		}
	}
	for i := range out {
		// A package from no registry, and a project itself, has no checksum.
		if src := out[i].source; src == "" || strings.Contains(src, "git") && !strings.Contains(src, "index") {
			out[i].bundled = true
		}
	}
	return lockOf{packages: out}
}

var (
	fileSum = pattern.New(`\bhash\s*=\s*"`)
	inURL   = pattern.New(`\b(?:url|file)\s*=\s*"([^"]*)"`)
	inHash  = pattern.New(`\bhash\s*=\s*"([^"]*)"`)
	inTable = pattern.New(`\b(registry|git|url|path|editable|virtual|directory)\s*=\s*"([^"]*)"`)
)

// tomlSource reads source = "…" and source = { registry = "…" }.
func tomlSource(value string) (src string, local bool) {
	if !strings.HasPrefix(value, "{") {
		return value, strings.HasPrefix(value, "git+")
	}
	m := inTable.FindStringSubmatch(value)
	switch {
	case m == nil:
		return value, true
	case m[1] == "registry":
		return m[2], false
	case m[1] == "git":
		return "git+" + m[2], true
	case m[1] == "url":
		return m[2], false
	}
	return "", true
}

// tomlFiles takes the files of a package: their sums, and the host when it is not the registry's own.
func tomlFiles(t string, p *locked) {
	h := inHash.FindStringSubmatch(t)
	if h == nil {
		return
	}
	name := ""
	if u := inURL.FindStringSubmatch(t); u != nil {
		name = u[1]
		if strings.Contains(name, "://") {
			// The registry names the index, its files lie elsewhere: both count.
			if host := place0(name); host != "files.pythonhosted.org" && !strings.Contains(p.source, host) {
				p.source = name
			}
			name = name[strings.LastIndexByte(name, '/')+1:]
		}
	}
	p.sums = append(p.sums, name+"\x00"+h[1])
}

// readGoSum reads go.sum: module, version, sum.
func readGoSum(s string) lockOf {
	var out []locked
	for i, l := range splitLines(s) {
		f := strings.Fields(l)
		if len(f) == 3 {
			out = append(out, locked{name: f[0], version: f[1], sums: f[2:], line: i + 1, bundled: true})
		}
	}
	return lockOf{packages: out}
}

// readYarn reads yarn.lock of version 1 and of Berry.
func readYarn(s string) lockOf {
	var out []locked
	for i, l := range splitLines(s) {
		if l == "" || l[0] == '#' {
			continue
		}
		if l[0] != ' ' && l[0] != '\t' {
			out = append(out, yarnHead(l, i+1))
			continue
		}
		if len(out) == 0 || strings.HasPrefix(l, "   ") {
			continue
		}
		p := &out[len(out)-1]
		key, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		value = strings.Trim(value, `"`)
		switch strings.TrimSuffix(key, ":") {
		case "version":
			p.version, p.line = value, i+1
		case "resolved":
			p.source = value
			if _, sum, ok := strings.Cut(value, "#"); ok && len(p.sums) == 0 && !strings.HasPrefix(value, "git") && len(sum) == 40 {
				p.sums = []string{"sha1-" + sum}
			}
			if in := nameInURL(value, p.version); in != "" && (p.actual == "" || in != p.actual) {
				p.actual = in
			}
		case "resolution":
			yarnResolution(p, value)
		case "integrity", "checksum":
			p.sums = []string{value}
		}
	}
	for i := range out {
		p := &out[i]
		p.bundled = p.source == "" || strings.HasPrefix(p.source, "git") || strings.HasPrefix(p.source, "npm")
	}
	return lockOf{packages: out}
}

// yarnHead reads the line above a package: "name@range, name@range":.
func yarnHead(l string, n int) locked {
	first, _, _ := strings.Cut(strings.Trim(strings.TrimSuffix(l, ":"), `"`), ",")
	name, spec := splitAt(strings.Trim(first, `"`))
	p := locked{name: name, line: n}
	if rest, ok := strings.CutPrefix(spec, "npm:"); ok {
		if as, version := splitAt(rest); version != "" {
			p.actual = as // an alias
		}
	}
	return p
}

// yarnResolution reads "name@npm:1.0.0" and "name@https://…".
func yarnResolution(p *locked, value string) {
	name, spec := splitAt(value)
	p.actual = name
	switch {
	case strings.HasPrefix(spec, "npm:"):
		p.source = "npm"
		if _, archive, ok := strings.Cut(spec, "__archiveUrl="); ok {
			p.source = strings.NewReplacer("%3A", ":", "%2F", "/").Replace(archive)
		}
	case strings.HasPrefix(spec, "workspace:"), strings.HasPrefix(spec, "patch:"), strings.HasPrefix(spec, "link:"), strings.HasPrefix(spec, "portal:"), strings.HasPrefix(spec, "file:"):
		p.source = ""
	default:
		p.source = spec
	}
	if p.source != "" && p.source != "npm" && !strings.HasPrefix(p.source, "http") {
		p.source = "git+" + p.source
	}
}

// splitAt cuts "@scope/name@spec" in front of the spec.
func splitAt(s string) (name, spec string) {
	if s == "" {
		return "", ""
	}
	if i := strings.IndexByte(s[1:], '@'); i >= 0 {
		return s[:i+1], s[i+2:]
	}
	return s, ""
}

var (
	pnpmPackage = pattern.New(`^  ['"]?/?((?:@[^/@'"]+/)?[^@'"/(]+)[@/]([^'"(]+?)(?:\(.*)?['"]?:\s*$`)
	pnpmField   = pattern.New(`\b(integrity|tarball|repo|directory):\s*['"]?([^\s'",}]+)`)
)

// readPNPM reads the packages of pnpm-lock.yaml, all its versions, line by line: it may have megabytes.
func readPNPM(s string) lockOf {
	var out []locked
	in := false
	for i, l := range splitLines(s) {
		if l != "" && l[0] != ' ' {
			in = strings.HasPrefix(l, "packages:")
			continue
		}
		if !in {
			continue
		}
		if m := pnpmPackage.FindStringSubmatch(l); m != nil {
			out = append(out, locked{name: m[1], version: m[2], source: "npm", line: i + 1})
			continue
		}
		if len(out) == 0 {
			continue
		}
		p := &out[len(out)-1]
		for _, m := range pnpmField.FindAllStringSubmatch(l, -1) {
			switch m[1] {
			case "integrity":
				p.sums = []string{m[2]}
			case "tarball":
				p.source = m[2]
				if in := nameInURL(m[2], p.version); in != "" {
					p.actual = in
				}
			case "repo":
				p.source, p.bundled = "git+"+m[2], true
			case "directory":
				p.source, p.bundled = "", true
			}
		}
	}
	return lockOf{packages: out}
}

var (
	gemSpec = pattern.New(`^    (\S+) \(([^)]+)\)$`)
	gemSum  = pattern.New(`^  (\S+) \(([^)]+)\) (sha\S+)$`)
)

// readGemfile reads Gemfile.lock.
func readGemfile(s string) lockOf {
	var out []locked
	part, remote := "", ""
	at := map[string]int{}
	for i, l := range splitLines(s) {
		if l != "" && l[0] != ' ' {
			part, remote = l, ""
			continue
		}
		if r, ok := strings.CutPrefix(l, "  remote: "); ok {
			remote = r
			if part == "GIT" {
				remote = "git+" + r
			}
			if part == "PATH" {
				remote = ""
			}
		}
		if m := gemSpec.FindStringSubmatch(l); m != nil && part != "DEPENDENCIES" {
			at[m[1]+" "+m[2]] = len(out)
			out = append(out, locked{name: m[1], version: m[2], source: remote, line: i + 1, bundled: true})
		}
		if m := gemSum.FindStringSubmatch(l); m != nil && part == "CHECKSUMS" {
			if j, ok := at[m[1]+" "+m[2]]; ok {
				out[j].sums = strings.Split(m[3], ",")
			}
		}
	}
	return lockOf{packages: out}
}
