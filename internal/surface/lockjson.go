package surface

import (
	"slices"
	"strings"
)

// collector makes packages of values that come one by one.
type collector struct {
	byID map[string]int
	out  []locked
}

func (c *collector) at(id string, line int) *locked {
	i, ok := c.byID[id]
	if !ok {
		if c.byID == nil {
			c.byID = map[string]int{}
		}
		i = len(c.out)
		c.byID[id] = i
		c.out = append(c.out, locked{line: line})
	}
	return &c.out[i]
}

// readNPM reads package-lock.json of versions 1 to 3.
func readNPM(s string) lockOf {
	var c collector
	err := walkJSON(s, func(l leaf) {
		n := len(l.path)
		where, ok := npmPlace(l.path)
		if !ok {
			return
		}
		p := c.at(strings.Join(l.path[:n-1], "\x00"), l.line)
		if p.name == "" {
			p.name = where
			if i := strings.LastIndex(where, "node_modules/"); i >= 0 {
				p.name = where[i+len("node_modules/"):]
			} else if l.path[0] == "packages" {
				p.bundled = true // a folder of the workspace
			}
		}
		switch l.path[n-1] {
		case "version":
			p.version, p.line = l.value, l.line
			if strings.Contains(l.value, ":") && p.source == "" {
				p.source, p.bundled = l.value, true // version 1 has the source of git here
			}
		case "resolved":
			p.source = l.value
			if !strings.HasPrefix(l.value, "http") {
				p.bundled = true
			}
		case "integrity":
			p.sums = strings.Fields(l.value)
		case "name":
			p.actual = l.value
		case "link", "bundled", "inBundle":
			p.bundled = true
		}
	})
	finishNPM(c.out)
	return lockOf{c.out, err}
}

// npmPlace is the name of the package whose field a value is: {packages: {where: {field}}}, or in version 1
// {dependencies: {name: {dependencies: {name: {field}}}}}.
func npmPlace(path []string) (where string, ok bool) {
	n := len(path)
	if n < 3 {
		return "", false
	}
	switch path[0] {
	case "packages":
		return path[1], (n == 3) && path[1] != ""
	case "dependencies":
		return path[n-2], n%2 == 1 && path[n-3] == "dependencies"
	}
	return "", false
}

// finishNPM settles what the order of fields left open.
func finishNPM(ps []locked) {
	for i := range ps {
		p := &ps[i]
		if strings.HasPrefix(p.source, "file:") || p.bundled && !strings.Contains(p.source, ":") {
			p.source = ""
		}
		if p.source == "" {
			p.bundled = true
		}
		if in := nameInURL(p.source, p.version); in != "" && p.actual != in {
			p.actual = in
		}
	}
}

// readBun reads bun.lock, which is JSON with trailing commas.
func readBun(s string) lockOf {
	var c collector
	err := walkJSON(s, func(l leaf) {
		if len(l.path) != 3 || l.path[0] != "packages" || l.path[2] != "[]" {
			return
		}
		p := c.at(l.path[1], l.line)
		switch {
		case p.name == "":
			p.name = l.path[1][strings.LastIndexByte(l.path[1], '/')+1:]
			if i := strings.LastIndex(l.path[1], "@"); i >= 0 {
				p.name = l.path[1][i:]
			}
			if name, version := splitAt(l.value); version != "" {
				p.version, p.actual = version, name
			}
			p.source = "npm"
			if strings.Contains(p.version, ":") {
				p.source, p.bundled = p.version, true
			}
			if strings.HasPrefix(p.version, "workspace:") || strings.HasPrefix(p.version, "file:") || strings.HasPrefix(p.version, "link:") {
				p.source = ""
			}
		case strings.Contains(l.value, "://"):
			p.source = l.value
		case strings.HasPrefix(l.value, "sha"):
			p.sums = []string{l.value}
		}
	})
	return lockOf{c.out, err}
}

// readPipfile reads Pipfile.lock.
func readPipfile(s string) lockOf {
	var c collector
	err := walkJSON(s, func(l leaf) {
		n := len(l.path)
		if n >= 3 && l.path[0] == "_meta" && l.path[1] == "sources" && l.path[n-1] == "url" {
			p := c.at("source "+l.value, l.line)
			p.name, p.source, p.bundled = "the index", l.value, true
			return
		}
		if n < 3 || l.path[0] == "_meta" {
			return
		}
		p := c.at(l.path[0]+"\x00"+l.path[1], l.line)
		p.name = l.path[1]
		switch l.path[2] {
		case "version":
			p.version, p.line = l.value, l.line
		case "hashes":
			p.sums = append(p.sums, l.value)
		case "git", "file", "path", "hg", "svn":
			p.source, p.bundled = l.value, true
		}
	})
	return lockOf{c.out, err}
}

// readComposer reads composer.lock.
func readComposer(s string) lockOf {
	var out []locked
	err := walkJSON(s, func(l leaf) {
		n := len(l.path)
		if n < 3 || !slices.Contains([]string{"packages", "packages-dev"}, l.path[0]) || l.path[1] != "[]" {
			return
		}
		if n == 3 && l.path[2] == "name" {
			out = append(out, locked{name: l.value, line: l.line, bundled: true})
		}
		if len(out) == 0 {
			return
		}
		p := &out[len(out)-1]
		switch strings.Join(l.path[2:], ".") {
		case "version":
			p.version = l.value
		case "source.url":
			p.source = "git+" + strings.TrimSuffix(l.value, ".git")
		case "dist.url":
			// The archive must be of the repository that is named as the source.
			if host := place0(l.value); host != "api.github.com" && host != "" {
				out = append(out, locked{name: p.name, version: p.version + " (archive)", source: l.value, line: l.line, bundled: true})
				return
			}
			if repo := strings.TrimPrefix(strings.TrimPrefix(p.source, "git+"), "https://github.com/"); repo != p.source && !strings.Contains(strings.ToLower(l.value), strings.ToLower("/repos/"+repo+"/")) {
				p.actual = l.value
			}
		case "dist.reference", "dist.shasum":
			if l.value != "" {
				p.sums = append(p.sums, l.value)
			}
		}
	})
	for i := range out {
		out[i].source = composerSource(out[i].source)
	}
	return lockOf{out, err}
}

// composerSource: each package of PHP has a repository of its own on the same forge, so the forge counts.
func composerSource(src string) string {
	if rest, ok := strings.CutPrefix(src, "git+https://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return host
	}
	return src
}
