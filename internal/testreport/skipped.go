package testreport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// findSkipped flags tests that run on base and are skipped on head, and new ones
// that never run.
func (fs *flagger) findSkipped(s *suites) {
	for _, p := range s.pairs {
		if fs.late() {
			return
		}
		r := p.is.src.lang.rules
		had := len(p.was.matching(r.skip)) + len(p.was.matching(r.skipIf))
		now := append(p.is.matching(r.skip), p.is.matching(r.skipIf)...)
		switch {
		case len(now) > had:
			fs.at(workorder.FlagTestSkipped, p.is, now[len(now)-1], "%s: it ran before", quoted(p.is, now[len(now)-1]))
		case p.is.constraint != p.was.constraint && p.is.constraint != "":
			fs.line(workorder.FlagTestSkipped, p.is.path, 1, fmt.Sprintf("tests of this file are bound to %q now", p.is.constraint))
		case p.is.leavesByEnv() > p.was.leavesByEnv():
			fs.at(workorder.FlagTestSkipped, p.is, p.is.decl, "%s returns where the environment says so", p.is.leaf)
		case p.is.leavesEarly() && !p.was.leavesEarly():
			fs.at(workorder.FlagTestSkipped, p.is, p.is.decl, "%s returns before it asserts anything", p.is.leaf)
		}
	}
	for _, t := range s.added {
		r := t.src.lang.rules
		for _, i := range t.matching(r.skip) {
			if r.todo != nil && r.todo.MatchString(t.src.code[i]) || t.conditional(i) {
				continue
			}
			fs.at(workorder.FlagTestSkipped, t, i, "%s: a new test that does not run", quoted(t, i))
			break
		}
	}
	for _, f := range s.files {
		fs.skippedGroups(f)
	}
}

// skippedGroups flags what stands outside of tests and keeps many from running.
func (fs *flagger) skippedGroups(f *testFile) {
	if f.new == nil {
		return
	}
	r := f.new.lang.rules
	// In an existing file a condition counts as well: the tests below it ran without.
	kinds := []*pattern.Pattern{r.skip, r.skipIf}
	if f.old == nil {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		if kind == nil {
			continue
		}
		had := marks(f.old, f.oldOutside, kind)
		now := marks(f.new, f.newOutside, kind)
		if total(now) <= total(had) {
			continue
		}
		for _, i := range f.newOutside {
			if l := squeeze(f.new.code[i]); kind.MatchString(f.new.code[i]) && now[l] > had[l] && !r.isHelper(f.new, i) {
				fs.line(workorder.FlagTestSkipped, f.newPath, i+1, "tests are skipped: "+squeeze(f.new.full[i]))
				break
			}
		}
	}
	for _, i := range f.newOutside {
		if l := f.new.code[i]; f.new.lang == golang && endsWell.MatchString(l) && !endsWell.MatchString(f.oldText) {
			fs.line(workorder.FlagTestSkipped, f.newPath, i+1, "the tests end well whatever they find: "+squeeze(l))
		}
	}
	if r.only != nil && total(marks(f.new, f.new.all(), r.only)) > total(marks(f.old, f.old.all(), r.only)) {
		for i := range f.new.code {
			if r.only.MatchString(f.new.code[i]) {
				fs.line(workorder.FlagTestSkipped, f.newPath, i+1, "only this runs, all other tests of the file do not: "+squeeze(f.new.full[i]))
				break
			}
		}
	}
}

// endsWell is a TestMain that does not say what the tests found.
var endsWell = re(`\bos\.Exit\(0\)`)

// marks counts the lines that match, by their text.
func marks(src *source, lines []int, r *pattern.Pattern) map[string]int {
	m := map[string]int{}
	for _, i := range lines {
		if r.MatchString(src.code[i]) {
			m[squeeze(src.code[i])]++
		}
	}
	return m
}

// all are the numbers of all lines.
func (s *source) all() []int {
	if s == nil {
		return nil
	}
	out := make([]int, len(s.code))
	for i := range out {
		out[i] = i
	}
	return out
}

// isHelper reports whether a skip outside of tests is in a function that tests
// call by choice ("needsRoot(t)"); the call then tells.
func (r *rules) isHelper(s *source, i int) bool {
	return s.lang == golang && indent(s.code[i]) > 0
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// matching are the lines of a test that match.
func (t *testFunc) matching(r *pattern.Pattern) (out []int) {
	if r == nil {
		return nil
	}
	for i := t.start; i <= t.end && i < len(t.src.code); i++ {
		if r.MatchString(t.src.code[i]) {
			out = append(out, i)
		}
	}
	return out
}

// conditional reports whether a line lies deeper than the body of its test, as in an if.
func (t *testFunc) conditional(line int) bool {
	if line <= t.decl {
		return false
	}
	return indent(t.src.code[line]) > t.depth()
}

// depth is the indentation of a test's body.
func (t *testFunc) depth() int {
	least := -1
	for i := t.decl + 1; i < t.end && i < len(t.src.code); i++ {
		if w := indent(t.src.code[i]); w >= 0 && (least < 0 || w < least) {
			least = w
		}
	}
	return least
}

var leaves = re(`^\s*return\s*(?:;|Ok\(\(\)\);|nil|None|null;)?\s*$`)

// leavesEarly reports whether a test returns, under no condition, before its first assertion.
func (t *testFunc) leavesEarly() bool {
	depth := t.depth()
	for i := t.decl + 1; i < t.end && i < len(t.src.code); i++ {
		if t.src.lang.rules.assert.MatchString(t.src.code[i]) {
			return false
		}
		if leaves.MatchString(t.src.code[i]) && indent(t.src.code[i]) <= depth {
			rest := t.src.code[i+1 : min(t.end+1, len(t.src.code))] // where blocks are indented, the last line counts
			return slices.ContainsFunc(rest, func(l string) bool { return strings.Trim(l, " \t)};") != "" })
		}
	}
	return false
}

// quoted is a line of a test for a human.
func quoted(t *testFunc, i int) string {
	line := squeeze(t.src.full[i])
	if strings.Contains(line, t.leaf) {
		return line
	}
	return t.leaf + ": " + line
}

var (
	environ = re(`^\s*if\b.*(?:os\.(?:Getenv|LookupEnv|environ|getenv)|process\.(?:env|platform)|runtime\.GOOS|\bgetenv\b|ENV\[|env::var|sys\.platform|platform\.system)`)
	returns = re(`\breturn\b\s*(?:;|None|nil)?\s*}?\s*$`)
)

// leavesByEnv counts returns below a question to the environment.
func (t *testFunc) leavesByEnv() (n int) {
	for _, i := range t.matching(environ) {
		if returns.MatchString(t.src.code[i]) || i+1 < len(t.src.code) && leaves.MatchString(t.src.code[i+1]) {
			n++
		}
	}
	return n
}
