package testreport

import (
	"cmp"
	"slices"
	"strings"
)

// testFile is a file with tests on either side of a change.
type testFile struct {
	*fileChange
	old, new   *source // nil on the side where it has no tests
	was, is    []*testFunc
	oldOutside []int // lines outside of tests
	newOutside []int
}

// testPair is a test on both sides.
type testPair struct{ was, is *testFunc }

// fresh are the lines of a test that it did not have before.
func (p testPair) fresh() (out []int) {
	had := map[string]bool{}
	for _, i := range p.was.lines() {
		had[squeeze(p.was.src.full[i])] = true
	}
	for _, i := range p.is.lines() {
		if !had[squeeze(p.is.src.full[i])] {
			out = append(out, i)
		}
	}
	return out
}

// suites is the change as far as it is about tests.
type suites struct {
	files   []*testFile
	pairs   []testPair
	deleted []*testFunc
	added   []*testFunc
	// addedLines counts the lines that are new in any test file, addedValues has their literals.
	addedLines  map[string]int
	addedValues map[string]bool
	// helpers are functions outside of tests, on head, that can fail a test: name to number of assertions.
	helpers map[string]int
}

// gather takes the test files of a change apart and finds out which test became which.
func gather(c *change) *suites {
	s := &suites{addedLines: map[string]int{}, addedValues: map[string]bool{}, helpers: map[string]int{}}
	var was, is []*testFunc
	for _, f := range c.files {
		if c.ctx.Err() != nil {
			return s
		}
		tf := &testFile{fileChange: f}
		tf.old, tf.was, tf.oldOutside = takeApart(f.oldPath, f.oldText)
		tf.new, tf.is, tf.newOutside = takeApart(f.newPath, f.newText)
		if tf.old == nil && tf.new == nil {
			s.learnSupport(f)
			continue
		}
		s.files = append(s.files, tf)
		was, is = append(was, tf.was...), append(is, tf.is...)
		s.learn(tf)
	}
	s.pair(was, is)
	return s
}

// takeApart reads one side of a file when it has or may have tests.
func takeApart(p, text string) (*source, []*testFunc, []int) {
	l := languageOf(p)
	if l == nil || text == "" || !isTestFile(p) && !l.anywhere {
		return nil, nil, nil
	}
	src := read(l, text)
	ts := tests(p, src)
	if len(ts) == 0 && !isTestFile(p) {
		return nil, nil, nil
	}
	inside := make([]bool, len(src.code))
	for _, t := range ts {
		for i := t.start; i <= t.end && i < len(inside); i++ {
			inside[i] = true
		}
	}
	var outside []int
	for i, in := range inside {
		if !in && strings.TrimSpace(src.full[i]) != "" {
			outside = append(outside, i)
		}
	}
	return src, ts, outside
}

var function = re(`^\s*(?:(?:export|async|public|private|protected|internal|static|pub|final)\s+)*(?:func(?:tion)?|def|fn|fun|const|void|let)\s+(?:\([^)]*\)\s*)?(\w{3,})\s*[=(<\[]`)

// learn remembers what a file adds.
func (s *suites) learn(f *testFile) {
	had := map[string]int{}
	if f.old != nil {
		for i := range f.old.full {
			had[squeeze(f.old.full[i])]++
		}
	}
	if f.new == nil {
		return
	}
	for i := range f.new.full {
		l := squeeze(f.new.full[i])
		if had[l] > 0 {
			had[l]--
			continue
		}
		s.addedLines[l]++
		for _, v := range values(f.new.full[i]) {
			s.addedValues[v] = true
		}
	}
	name := ""
	for _, i := range f.newOutside {
		if m := function.FindStringSubmatch(f.new.code[i]); m != nil {
			name = m[1]
		}
		if name != "" && f.new.lang.rules.assert.MatchString(f.new.code[i]) {
			s.helpers[name]++
		}
	}
}

// learnSupport remembers the helpers that a file beside the tests gained.
func (s *suites) learnSupport(f *fileChange) {
	if l := languageOf(f.newPath); l == nil || !support.MatchString(f.newPath) || f.newText == "" {
		return
	}
	tf := &testFile{fileChange: f, new: read(languageOf(f.newPath), f.newText)}
	if f.oldText != "" && languageOf(f.oldPath) != nil {
		tf.old = read(languageOf(f.oldPath), f.oldText)
	}
	tf.newOutside = tf.new.all()
	s.learn(tf)
}

// minSimilar is how much of two tests has to be the same (of 100) for one to be the other under a new name.
const minSimilar = 55

// maxCandidates bounds the tests that are compared with each other by content.
const maxCandidates = 150

// pair finds for each test of base what became of it: first by file and name,
// then by name in another file, then by content.
func (s *suites) pair(was, is []*testFunc) {
	taken := map[*testFunc]bool{}
	match := func(key func(*testFunc) string, renamed map[string]string) {
		byKey := map[string][]*testFunc{}
		for _, t := range is {
			if !taken[t] {
				byKey[key(t)] = append(byKey[key(t)], t)
			}
		}
		for _, t := range was {
			k := key(t)
			if renamed != nil {
				if to, ok := renamed[t.path]; ok {
					k = to + strings.TrimPrefix(k, t.path)
				}
			}
			if list := byKey[k]; !taken[t] && len(list) > 0 {
				taken[t], taken[list[0]] = true, true
				s.pairs = append(s.pairs, testPair{t, list[0]})
				byKey[k] = list[1:]
			}
		}
	}
	renamed := map[string]string{}
	for _, f := range s.files {
		if f.oldPath != "" && f.newPath != "" {
			renamed[f.oldPath] = f.newPath
		}
	}
	match(func(t *testFunc) string { return t.path + "\x00" + t.name }, renamed)
	match(func(t *testFunc) string { return t.path + "\x00" + t.leaf }, renamed)
	match(func(t *testFunc) string { return t.name }, nil)
	match(func(t *testFunc) string { return t.leaf }, nil)
	left := func(ts []*testFunc) (out []*testFunc) {
		for _, t := range ts {
			if !taken[t] {
				out = append(out, t)
			}
		}
		return out
	}
	s.alike(left(was), left(is), taken)
	s.deleted, s.added = left(was), left(is)
	s.learnAdded()
}

// learnAdded remembers the lines of new tests, also of those that stood in another test of the file before.
func (s *suites) learnAdded() {
	for _, t := range s.added {
		for _, i := range t.lines() {
			if l := squeeze(t.src.full[i]); s.addedLines[l] == 0 {
				s.addedLines[l]++
			}
		}
	}
}

// alike pairs tests of which most lines are the same.
func (s *suites) alike(was, is []*testFunc, taken map[*testFunc]bool) {
	if len(was) == 0 || len(is) == 0 || len(was) > maxCandidates || len(is) > maxCandidates {
		return
	}
	type score struct {
		testPair
		n int
	}
	body := func(t *testFunc) map[string]int {
		m := map[string]int{}
		for _, i := range t.lines() {
			if i != t.decl {
				m[squeeze(t.src.full[i])]++
			}
		}
		return m
	}
	bodies := make([]map[string]int, len(is))
	for i, t := range is {
		bodies[i] = body(t)
	}
	var scores []score
	for _, a := range was {
		lines := body(a)
		for i, b := range is {
			if n := overlap(lines, bodies[i]); n >= minSimilar && a.src.lang == b.src.lang {
				scores = append(scores, score{testPair{a, b}, n})
			}
		}
	}
	slices.SortStableFunc(scores, func(a, b score) int { return cmp.Compare(b.n, a.n) })
	for _, sc := range scores {
		if !taken[sc.was] && !taken[sc.is] {
			taken[sc.was], taken[sc.is] = true, true
			s.pairs = append(s.pairs, sc.testPair)
		}
	}
}

// overlap is how much two bodies have in common, of 100. Lines of brackets count for nothing.
func overlap(a, b map[string]int) int {
	common, total := 0, 0
	for l, n := range a {
		if len(l) > 3 {
			common += 2 * min(n, b[l])
			total += n
		}
	}
	for l, n := range b {
		if len(l) > 3 {
			total += n
		}
	}
	if total == 0 {
		return 0
	}
	return 100 * common / total
}

// literal matches strings, and numbers that are no part of a word.
var literal = re("\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`[^`]*`|\\b\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?\\b")

// values are the literals of a line, strings without their quotes.
func values(line string) []string {
	var out []string
	for _, v := range literal.FindAllString(line, 64) {
		if v[0] == '"' || v[0] == '\'' || v[0] == '`' {
			v = v[1 : len(v)-1]
		}
		if v != "" {
			out = append(out, v)
		}
	}
	return out
}

// livesOn reports whether all values that a test asserted are among what test
// files gained: it was merged into a table, or its table was moved.
func (s *suites) livesOn(t *testFunc) bool {
	n := 0
	for _, i := range t.lines() {
		if !t.src.lang.rules.assert.MatchString(t.src.code[i]) && !row.MatchString(t.src.code[i]) {
			continue
		}
		for _, v := range values(t.src.full[i]) {
			if !s.addedValues[v] {
				return false
			}
			n++
		}
	}
	return n > 0
}
