package surface

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// fuzzPaths are one path for each rule, so that every check gets the input.
func fuzzPaths() []string {
	var ps []string
	for _, r := range pathRules() {
		for _, p := range r.paths {
			p = strings.TrimPrefix(p, "/")
			p = strings.ReplaceAll(p, "/**", "/config.json")
			ps = append(ps, strings.ReplaceAll(p, "*", "x"))
		}
	}
	return append(ps, "a.go", "a.js", "README.md", "vendor/a.py", ".claude/hooks/x.sh", ".github/workflows/a.yml")
}

// examined runs all checks on one change without a repository.
func examined(p, old, head string, oldMode, newMode string) []string {
	c := newChange(p)
	c.rule = classify(c.lower)
	c.old, c.new, c.read, c.oldMode, c.newMode = text([]byte(old)), text([]byte(head)), true, oldMode, newMode
	c.oldSize, c.newSize = int64(len(old)), int64(len(head))
	s := newSink()
	s.c = c
	examine(c, s)
	var out []string
	for _, f := range s.findings() {
		out = append(out, f.Kind, f.Path, f.Text)
	}
	return out
}

// No content makes a check panic or lets something through that is not fit to be shown; equal sides give nothing.
func FuzzExamine(f *testing.F) {
	for _, dir := range []string{"planted", "innocent"} {
		for _, c := range readCorpus(f, dir) {
			for p, e := range c.head {
				f.Add(p, c.base[p].data, e.data, e.mode == modeLink)
			}
		}
	}
	paths := fuzzPaths()
	f.Fuzz(func(t *testing.T, p, old, head string, link bool) {
		if len(p) > 4096 || len(old) > 1<<16 || len(head) > 1<<16 {
			return
		}
		mode := modeFile
		if link {
			mode = modeLink
		}
		for _, name := range []string{p, paths[len(old+head)%len(paths)], paths[(len(p)*31+len(head))%len(paths)]} {
			for _, s := range examined(name, old, head, modeFile, mode) {
				if !utf8.ValidString(s) || visible(s, len(s)+1) != s {
					t.Errorf("%q is not fit to be shown", s)
				}
			}
			if got := examined(name, head, head, modeFile, modeFile); len(got) != 0 {
				t.Errorf("%q did not change, got %q", name, got)
			}
		}
	})
}

// An excerpt of a lock file is bounded by its input.
func FuzzLock(f *testing.F) {
	for _, c := range readCorpus(f, "planted") {
		for p, e := range c.head {
			if r := classify(strings.ToLower(p)); r != nil && r.kind == kindLock {
				f.Add(e.data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, read := range lockReaders {
			if got := read(s); len(got.packages) > len(s) {
				t.Errorf("%s: %d packages of %d bytes", name, len(got.packages), len(s))
			}
		}
	})
}
