package surface

import (
	"path"
	"strings"
	"sync"
)

// pathRule says what a file is by its path, and how its change is looked at.
type pathRule struct {
	kind  string
	paths []string // in lower case: "/" in front is the root, "/**" at the end everything below
	check func(*change, *sink)
	// unasked: what the file says runs without being asked for, so a new line is grave.
	unasked bool
}

// place is a pattern cut into its folders.
type place struct {
	order  int
	rule   *pathRule
	root   bool
	below  bool
	folder []string
}

// places finds rules by the last fixed name of their patterns, so that a path costs a few look-ups
// and not one comparison for each pattern.
type places struct {
	byName map[string][]place // last name of the path
	byDir  map[string][]place // a folder of the path
	byGlob []place            // last name has wildcards
}

var index = sync.OnceValue(func() *places {
	ps := &places{byName: map[string][]place{}, byDir: map[string][]place{}}
	for i, r := range pathRules() {
		for _, pattern := range r.paths {
			p := place{order: i, rule: &r}
			pattern, p.root = strings.CutPrefix(pattern, "/")
			pattern, p.below = strings.CutSuffix(pattern, "/**")
			p.folder = strings.Split(pattern, "/")
			last := p.folder[len(p.folder)-1]
			switch {
			case p.below:
				ps.byDir[last] = append(ps.byDir[last], p)
			case strings.Contains(last, "*"):
				ps.byGlob = append(ps.byGlob, p)
			default:
				ps.byName[last] = append(ps.byName[last], p)
			}
		}
	}
	return ps
})

// classify finds the rule of a path in lower case; of several the first in the table.
func classify(lower string) *pathRule {
	ps := index()
	names := strings.Split(lower, "/")
	if len(names) > maxDepth {
		names = names[len(names)-maxDepth:]
	}
	var best *place
	consider := func(list []place, end int) {
		for i := range list {
			if p := &list[i]; (best == nil || p.order < best.order) && p.fits(names, end) {
				best = p
			}
		}
	}
	consider(ps.byName[names[len(names)-1]], len(names))
	consider(ps.byGlob, len(names))
	for i, dir := range names[:len(names)-1] {
		consider(ps.byDir[dir], i+1)
	}
	if best == nil {
		return nil
	}
	return best.rule
}

// fits compares the pattern with the names that end before end.
func (p *place) fits(names []string, end int) bool {
	start := end - len(p.folder)
	if start < 0 || p.root && start != 0 {
		return false
	}
	for i, want := range p.folder {
		got := names[start+i]
		if want == got {
			continue
		}
		if ok, err := path.Match(want, got); err != nil || !ok {
			return false
		}
	}
	return true
}

// settingsPlace reports whether a path is settings, or a folder in which settings lie.
func settingsPlace(lower string) bool {
	if classify(lower) != nil {
		return true
	}
	last := path.Base(lower)
	for _, p := range index().byDir[last] {
		if p.fits(strings.Split(lower, "/"), strings.Count(lower, "/")+1) {
			return true
		}
	}
	// A folder that settings need above them.
	switch last {
	case ".github", ".vscode", ".claude", ".cursor", ".gemini", ".idea", ".mvn", ".cargo", ".gitlab", ".husky", ".yarn":
		return true
	}
	return false
}

// vendored are folders of copied code; what is found in one is told in one line.
var vendored = []string{"vendor", "node_modules", "third_party", "third-party", "bower_components", "pods", "carthage", "external", "deps"}

// vendorRoot is the folder of copied code that a path lies in, or "".
func vendorRoot(p string) string {
	dir := path.Dir(p)
	at := 0
	for name := range strings.SplitSeq(dir, "/") {
		at += len(name)
		for _, v := range vendored {
			if strings.EqualFold(name, v) {
				return p[:at]
			}
		}
		at++
	}
	if strings.HasPrefix(p, ".yarn/cache/") {
		return ".yarn/cache"
	}
	return ""
}
