package testreport

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// testFunc is one test in a source.
type testFunc struct {
	path  string // of its file
	name  string // with its class or groups
	leaf  string // without
	src   *source
	start int // first line, what stands above it included; lines count from 0
	decl  int
	end   int // last line
	// constraint is what the file as a whole is bound to: build tags, system in the name.
	constraint string
}

// maxTestFuncs bounds the tests of one file that are looked at.
const maxTestFuncs = 3000

// tests finds the tests of a source.
func tests(p string, s *source) []*testFunc {
	if s == nil {
		return nil
	}
	x := &extractor{s: s, path: p, r: s.lang.rules}
	if s.lang == golang {
		x.constraint = goConstraint(p, s)
	}
	for i := 0; i < len(s.code) && len(x.out) < maxTestFuncs; i++ {
		if strings.TrimSpace(s.code[i]) == "" {
			continue
		}
		if m := match(x.r.group, s.code[i]); m != nil {
			x.open(i, m[1])
		}
		if t := x.at(i); t != nil {
			x.out = append(x.out, t)
			if t.end > i && x.r.titled == nil { // a title may stand in a loop of another test
				i = t.end
			}
		}
	}
	return x.out
}

type extractor struct {
	s          *source
	r          *rules
	path       string
	constraint string
	groups     []openGroup
	out        []*testFunc
}

type openGroup struct {
	title  string
	indent int
}

func match(r *pattern.Pattern, line string) []string {
	if r == nil {
		return nil
	}
	return r.FindStringSubmatch(line)
}

func (x *extractor) open(i int, word string) {
	title := word
	if x.s.lang != python {
		if title = x.title(i, word); title == "" {
			return
		}
	}
	w := indent(x.s.code[i])
	for len(x.groups) > 0 && x.groups[len(x.groups)-1].indent >= w {
		x.groups = x.groups[:len(x.groups)-1]
	}
	if len(x.groups) < maxDepth {
		x.groups = append(x.groups, openGroup{title: title, indent: w})
	}
}

// at is the test that is declared on a line.
func (x *extractor) at(i int) *testFunc {
	line := x.s.code[i]
	if m := match(x.r.named, line); m != nil && m[1] != "TestMain" {
		return x.make(i, m[1])
	}
	if m := match(x.r.marked, line); m != nil {
		return x.markedAt(i)
	}
	if m := match(x.r.titled, line); m != nil {
		if title := x.title(i, m[1]); title != "" {
			return x.make(i, title)
		}
	}
	return nil
}

// markedAt is the function below an annotation.
func (x *extractor) markedAt(i int) *testFunc {
	const near = 15 // annotations with a table of values may be long
	s := x.s
	for j := i; j < len(s.code) && j <= i+near; j++ {
		line := s.code[j]
		if body := strings.TrimSpace(line); j > i && x.r.marked.MatchString(line) && s.lang != csharp {
			return nil
		} else if strings.HasPrefix(body, "@") || strings.HasPrefix(body, "[") || strings.HasPrefix(body, "#[") {
			// An annotation with brackets looks like a call; a function may follow on the line.
			if k := strings.LastIndexAny(line, "@]"); k >= 0 && strings.IndexByte(line[k:], ' ') > 0 {
				line = line[k+strings.IndexByte(line[k:], ' '):]
			} else {
				continue
			}
		}
		if m := x.r.fn.FindStringSubmatchIndex(line); m != nil {
			at := len(s.code[j]) - len(line)
			name := s.full[j][at+m[2] : at+m[3]]
			if n := len(x.out); n > 0 && x.out[n-1].decl == j {
				return nil
			}
			return x.make(j, strings.Trim(name, "`"))
		}
	}
	return nil
}

// title is the first string behind a word, on its line or the two below.
func (x *extractor) title(i int, word string) string {
	at := max(strings.Index(x.s.code[i], word), 0)
	for j := i; j < len(x.s.full) && j <= i+2; j++ {
		line := x.s.full[j]
		if j > i {
			at = 0
		}
		if q := strings.IndexAny(line[at:], "\"'`"); q >= 0 {
			rest := line[at+q:]
			if e := strings.IndexByte(rest[1:], rest[0]); e > 0 {
				return rest[1 : 1+e]
			}
			return ""
		}
	}
	return ""
}

func (x *extractor) make(decl int, leaf string) *testFunc {
	s := x.s
	t := &testFunc{path: x.path, leaf: leaf, src: s, decl: decl, start: x.header(decl), constraint: x.constraint}
	w := indent(s.code[decl])
	for len(x.groups) > 0 && x.groups[len(x.groups)-1].indent >= w {
		x.groups = x.groups[:len(x.groups)-1]
	}
	var names []string
	for _, g := range x.groups {
		names = append(names, g.title)
	}
	t.name = strings.Join(append(names, leaf), " > ")
	switch {
	case s.lang.indented:
		t.end = s.dedent(decl)
	case s.lang == javascript || s.lang == php && !strings.Contains(s.code[decl], "function test"):
		if t.end = s.closing(decl, '(', ')'); s.lang == php && x.r.fn.MatchString(s.code[decl]) && x.r.titled.FindString(s.code[decl]) == "" {
			t.end = s.closing(decl, '{', '}')
		}
		// test.each([...])('title', ...) has two pairs of brackets.
		if last := strings.TrimSpace(s.code[t.end]); strings.Contains(last, ")(") && strings.HasSuffix(last, "{") {
			t.end = s.closing(t.end, '{', '}')
		}
	default:
		t.end = s.closing(decl, '{', '}')
		if t.end == decl && !strings.Contains(s.code[decl], "{") { // Kotlin: fun a() = ...
			t.end = s.closing(decl, '(', ')')
		}
	}
	return t
}

// header is the first line of the annotations above a declaration.
func (x *extractor) header(decl int) int {
	first, depth := decl, 0
	for i := decl - 1; i >= 0 && decl-i < 60; i-- {
		body := strings.TrimSpace(x.s.code[i])
		depth += strings.Count(body, ")") + strings.Count(body, "]") - strings.Count(body, "(") - strings.Count(body, "[")
		mark := strings.HasPrefix(body, "@") || strings.HasPrefix(body, "#[") || x.s.lang == csharp && strings.HasPrefix(body, "[")
		switch {
		case depth > 0:
		case mark:
			first, depth = i, 0
		default:
			return first
		}
	}
	return first
}

// lines are the numbers of a test's lines that have code.
func (t *testFunc) lines() []int {
	var out []int
	for i := t.start; i <= t.end && i < len(t.src.code); i++ {
		if strings.TrimSpace(t.src.full[i]) != "" {
			out = append(out, i)
		}
	}
	return out
}

// squeeze makes lines comparable that differ in blanks only.
func squeeze(line string) string { return texts.Words(line) }

var (
	goBuild  = re(`^//go:build (.+)$`)
	goSystem = re(`_(aix|android|darwin|dragonfly|freebsd|illumos|ios|js|netbsd|openbsd|plan9|solaris|wasip1|windows)(?:_\w+)?_test\.go$`)
)

// goConstraint is what keeps a Go file out of an ordinary build.
func goConstraint(p string, s *source) string {
	for _, line := range s.raw[:min(len(s.raw), 60)] {
		if m := goBuild.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		if strings.HasPrefix(line, "package ") {
			break
		}
	}
	if m := goSystem.FindStringSubmatch(p); m != nil {
		return m[1]
	}
	return ""
}
