package testreport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// site is a place in product code where a value appears as an answer.
type site struct {
	path   string
	line   int
	output string // the answer
	input  string // what is asked for; "" when the function always answers so
	fn     string // the function that always answers so
	text   string
	// listed says that it is an entry of a table, which is also how honest programs look.
	listed bool
	// several says that what is asked for is a list of literals.
	several bool
}

const (
	// minValue is how long a value has to be, in characters, to say anything.
	minValue = 4
	// maxSites bounds the places that are looked up in the tests.
	maxSites = 300
)

const lit = `("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` + "`[^`]*`" + `|-?\b\d[\d_]*(?:\.\d+)?\b)`

// several is a list, tuple or table of literals, which says more than one does: what is answered to it may be short.
const several = `([\[({]\s*` + noGroup + `(?:\s*[,:]\s*` + noGroup + `)*\s*,?\s*[\])}])`

const noGroup = `(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\b\d[\d_]*(?:\.\d+)?\b)`

var (
	asked        = re(`(?:===?|\.equals\(|\.eq\(|\.Equals\(|\bcase|\bwhen|\bis|\bin\s*[\[({]|[sS]tarts_?[wW]ith\(|HasPrefix\(\w+,)\s*\(?\s*&?\s*` + lit + `|` + lit + `\)?\s*(?:===?|\.equals\(|=>)`)
	askedSeveral = re(`(?:==|===)\s*` + several + `|` + several + `\s*(?:==|===)`)
	// answered is a literal that is given back.
	answered = re(`(?:\breturn\b|=>|\?|\bthen\b|->|:|^\s*\w+\s*:?=)\s*\(?\s*(?:Ok\(|Some\(|String::from\(|\w+\.(?:New|of)\()?` + lit)
	// always is a body that is a literal and nothing else.
	alwaysLit = re(`^(?:return\b\s*)?\(?\s*(?:Ok\(|Some\(|String::from\()?` + lit + `(?:\.(?:to_string|into|to_owned|freeze)(?:\(\))?)?\)*(?:,\s*(?:nil|None))?\s*;?$`)
	entry     = re(`^\s*` + lit + `\s*(?::|=>)\s*` + lit + `,?\s*$`)
	declares  = re(`\b(?:func|function|fn|fun|def)\s+(?:\([^)]*\)\s*)?(?:self\.)?(\w+)\s*(?:\[[^\]]*\]|<[^>]*>)?\s*\(([^)]*)\)?|^\s*(?:export\s+)?(?:const|let)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\s*)?\(?([^)=]*)\)?\s*=>|^\s*(?:(?:public|private|protected|internal|static|async|final|override|virtual)\s+)+[\w<>\[\],.?]+\s+(\w+)\s*\(([^)]*)\)`)
	// tested is code that asks whether a test runs it.
	tested = re(`NODE_ENV\b.*['"]test['"].*\breturn\b|typeof (?:jest|vi|mocha|describe)\b|JEST_WORKER_ID|PYTEST_CURRENT_TEST|\btesting\.Testing\(\)|["'](?:pytest|unittest)["']\s+in\s+sys\.modules|process\.env\.VITEST\b|\b(?:environ|getenv|Getenv|env)\b.*["']TESTING["']|\bRails\.env\.test\?|Lookup\("test\.v"\)|HasSuffix\(os\.Args\[0\], ?"\.test"\)|\bPHPUNIT_\w+`)
)

// findHardCoded flags values that tests expect and that the code has newly as answers.
func (fs *flagger) findHardCoded(c *change, s *suites) error {
	removed := map[string]bool{}
	for _, f := range c.files {
		if f.oldPath != "" && product(f.oldPath) {
			gone, _ := changedLines(f.oldText, f.newText)
			for _, l := range gone {
				removed[l] = true
			}
		}
	}
	var sites []site
	for _, f := range c.files {
		if f.newPath == "" || !product(f.newPath) || f.newText == "" || f.oldID == f.newID {
			continue
		}
		sites = append(sites, fs.sitesOf(f, s, removed)...)
	}
	if len(sites) == 0 {
		return nil
	}
	sites = sites[:min(len(sites), maxSites)]
	was, is, err := fs.allTests(c, sites)
	if err != nil {
		return err
	}
	fresh := map[string]bool{}
	for _, t := range s.added {
		fresh[t.leaf] = true
	}
	for _, st := range sites {
		if fs.late() {
			return nil
		}
		if name := st.expectedBy(was); name != "" {
			fs.line(workorder.FlagHardCoded, st.path, st.line+1, fmt.Sprintf("%s: the test %s expects this value: %s", st.what(), name, st.text))
		} else if name := st.expectedBy(is); name != "" && !st.listed && !fresh[name] {
			fs.line(workorder.FlagHardCoded, st.path, st.line+1, fmt.Sprintf("%s: the test %s expects this value: %s", st.what(), name, st.text))
		}
	}
	return nil
}

func (st site) what() string {
	if st.input == "" {
		return st.fn + " always answers the same"
	}
	return fmt.Sprintf("%q has an answer of its own", st.input)
}

// sitesOf finds the answers among the new lines of a file.
func (fs *flagger) sitesOf(f *fileChange, s *suites, removed map[string]bool) (out []site) {
	src := read(languageOf(f.newPath), f.newText)
	end := len(src.full) // tests of Rust lie at the end of the file
	for _, tf := range s.files {
		if tf.fileChange == f {
			for _, t := range tf.is {
				end = min(end, t.start)
			}
		}
	}
	fresh := freshLines(f.oldText, src, removed)
	for i := range end {
		if !fresh[i] {
			continue
		}
		line := squeeze(src.full[i])
		if tested.MatchString(src.full[i]) {
			fs.line(workorder.FlagHardCoded, f.newPath, i+1, "the code asks whether it is being tested: "+line)
			continue
		}
		if m := entry.FindStringSubmatch(src.full[i]); m != nil {
			if out = appendSite(out, site{path: f.newPath, line: i, input: value(m[1]), output: value(m[2]), text: line, listed: true}); len(out) > maxSites {
				return out
			}
			continue
		}
		out = append(specialCase(out, f.newPath, src, i, fresh), constantAnswer(f.newPath, src, i, fresh)...)
	}
	return out
}

// specialCase is a comparison with a literal and the literal that answers it, on
// the same line or one of the next two.
func specialCase(out []site, p string, src *source, i int, fresh map[int]bool) []site {
	asks := askedSeveral
	m := asks.FindStringSubmatch(src.full[i])
	if m == nil {
		asks = asked
		if m = asks.FindStringSubmatch(src.full[i]); m == nil {
			return out
		}
	}
	in := m[1] + m[2] // one of them is empty
	end := asks.FindStringIndex(src.full[i])[1]
	arrow := strings.HasSuffix(src.full[i][:end], "=>")
	if arrow && (src.lang == ruby || src.lang == php) {
		return out // a hash
	}
	for j := i; j <= i+2 && j < len(src.full); j++ {
		rest := src.full[j]
		if j == i && arrow {
			rest = rest[end-2:] // it is both
		} else if j == i {
			rest = rest[end:]
		}
		if a := answered.FindStringSubmatch(rest); a != nil && fresh[j] && a[1] != in {
			return appendSite(out, site{path: p, line: j, input: value(in), output: value(a[1]), text: squeeze(src.full[j]), several: asks == askedSeveral})
		}
	}
	return out
}

func appendSite(out []site, st site) []site {
	if len([]rune(st.output)) < minValue && !st.several || st.output == "" || st.input == "" || st.input == st.output {
		return out
	}
	return append(out, st)
}

// constantAnswer is the function of which a new line is the first statement and a literal.
func constantAnswer(p string, src *source, i int, fresh map[int]bool) []site {
	body := src.full[i]
	m := declares.FindStringSubmatch(body)
	if m != nil { // all on one line
		k := strings.LastIndex(body, "=>")
		if k >= 0 {
			body = body[k+2:]
		} else if k = strings.IndexByte(src.code[i], '{'); k >= 0 {
			body = strings.TrimSuffix(strings.TrimSpace(body[k+1:]), "}")
		} else if _, b, ok := strings.Cut(body, "):"); ok && src.lang == python {
			body = b
		} else {
			return nil
		}
	} else {
		decl := i - 1
		for decl >= 0 && strings.Trim(src.code[decl], " \t{\"'") == "" {
			decl--
		}
		if decl < 0 {
			return nil
		}
		m = declares.FindStringSubmatch(src.full[decl])
	}
	if m == nil || !fresh[i] {
		return nil
	}
	v := alwaysLit.FindStringSubmatch(strings.TrimSpace(body))
	name, params := m[1]+m[3]+m[5], strings.TrimSpace(m[2]+m[4]+m[6])
	params = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(params, "&"), "self"), ",")
	if v == nil || strings.TrimSpace(params) == "" || len([]rune(value(v[1]))) < minValue {
		return nil
	}
	return []site{{path: p, line: i, output: value(v[1]), fn: name, text: squeeze(src.full[i])}}
}

// freshLines are the lines of a source that stand nowhere in the code of base.
func freshLines(old string, src *source, removed map[string]bool) map[int]bool {
	had := map[string]int{}
	for l := range strings.Lines(old) {
		had[squeeze(l)]++
	}
	fresh := map[int]bool{}
	for i := range src.full {
		l := squeeze(src.raw[i])
		if had[l] > 0 {
			had[l]--
		} else if !removed[l] {
			fresh[i] = true
		}
	}
	return fresh
}

// value is what a literal says.
func value(l string) string {
	if l != "" && strings.IndexByte("\"'`", l[0]) >= 0 {
		return l[1 : len(l)-1]
	}
	return l
}

// allTests are the tests of both commits, changed or not, that have one of the values.
func (fs *flagger) allTests(c *change, sites []site) (was, is []*testFunc, err error) {
	known := map[string][]*testFunc{}
	for i, commit := range []string{c.base, c.head} {
		list, err := c.tree(commit, func(p string) bool { return isTestFile(p) || strings.HasSuffix(p, ".rs") })
		if err != nil {
			return nil, nil, err
		}
		list = list[:min(len(list), maxChanges)]
		var ids []string
		for _, t := range list {
			ids = append(ids, t.id)
		}
		if err := c.load(ids); err != nil {
			return nil, nil, err
		}
		for _, t := range list {
			if known[t.id] == nil && hasAny(c.texts[t.id], sites) {
				known[t.id] = tests(t.path, read(languageOf(t.path), c.texts[t.id]))
			}
			if i == 0 {
				was = append(was, known[t.id]...)
			} else {
				is = append(is, known[t.id]...)
			}
		}
	}
	return was, is, nil
}

func hasAny(text string, sites []site) bool {
	for _, st := range sites {
		if strings.Contains(text, st.output) {
			return true
		}
	}
	return false
}

// expectedBy is the name of a test that expects the answer, and gives the question
// within a few lines of it; "" for none.
func (st site) expectedBy(ts []*testFunc) string {
	const near = 4
	for _, t := range ts {
		r := t.src.lang.rules
		for i := t.start; i <= t.end && i < len(t.src.full); i++ {
			line := t.src.full[i]
			if !strings.Contains(line, st.output) || !has(line, st.output) {
				continue
			}
			asserts := r.assert.MatchString(t.src.code[i]) || row.MatchString(t.src.code[i]) || wants.MatchString(t.src.code[i])
			if !asserts {
				continue
			}
			from, to := max(i-near, t.start), min(i+near, t.end, len(t.src.full)-1)
			for j := from; j <= to; j++ {
				if st.isAsked(t, j, i) {
					return t.leaf
				}
			}
		}
	}
	return ""
}

// isAsked reports whether line j of a test gives the question, of which line i has the answer.
func (st site) isAsked(t *testFunc, j, i int) bool {
	line := t.src.full[j]
	switch {
	case st.input == "":
		return calls(t.src.code[j], st.fn)
	case st.several:
		return strings.Contains(unspaced.Replace(line), unspaced.Replace(st.input))
	}
	return has(line, st.input) && (j != i || strings.Count(line, st.input) > strings.Count(st.output, st.input))
}

var unspaced = strings.NewReplacer(" ", "", "\t", "", "'", "\"")

// wants is a line that names what is expected, or compares.
var wants = pattern.New(`(?i)\b(?:want|expect|expected|exp)\w*\b|[!=]=`)

func calls(line, fn string) bool {
	i := strings.Index(line, fn+"(")
	return i >= 0 && fn != "" && (i == 0 || !isWord(line[i-1]))
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// has reports whether a line has a literal of this value.
func has(line, v string) bool {
	return slices.Contains(values(line), v)
}
