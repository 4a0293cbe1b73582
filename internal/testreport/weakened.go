package testreport

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// strengths of an assertion.
const (
	always  = iota // holds whatever the code does
	broad          // holds for nearly everything
	partial        // a part, a range, a type
	exact
)

var (
	holdsAlways = re(`(?i)\bassert_?true\(\s*(?:t,\s*)?true\b|\bassert(?:ion)?s?\.(?:is_?)?true\(\s*(?:t,\s*)?true\b|^\s*assert (?:true|1)\b\s*(?:,|$)|expect\(\s*(?:true|1|false)\s*\)\.?(?:to|not)|assert!\(\s*true\b|assert_equal[ (]+(?:true|1),\s*(?:true|1)\b|^\s*(?:assert|ok|assert\.ok)\(\s*(?:true|1)\s*[,)]|\bassert true\b|\bexpect\(true\)|\|\|\s*(?:true|1)\b|\bor true\b|\bor 1\b|&&\s*false\b|\bfalse\s*&&|\band false\b|^\s*if false\b`)
	holdsNearly = re(`(?i)\.toBeDefined\(|\.toBeTruthy\(|\.not\.(?:toBeNull|toBeUndefined|toThrow)\(|expect\.any(?:thing)?\(|\bis not none\b|assertIsNotNone|assertIsInstance|\bisinstance\(|NotNil\(|assertNotNull|assertNotEmpty|NotEmpty\(|NotZero\(|isNotNull\(|\bbe_truthy\b|not_to be_nil|to be_present|refute_nil|\.is_(?:ok|some)\(\)|\bis_ok!|IsNotNull\(|NotNull\(|assertIsArray|IsType|IsAssignable|toBeInstanceOf|\.to\.(?:exist|be\.ok)\b|toBeGreaterThan(?:OrEqual)?\(\s*-?[01]\s*\)|assertGreater(?:Equal)?\([^,]+,\s*-?[01]\)|>=\s*0\b|^\s*assert \w[\w.]*(?:\([^()]*\))?\s*$|\bassertTrue\(\s*\w+\s*\)|[!=]= nil\b|\.toMatch\(/\.\*/|\bhas_key\?|should\.exist\b|\.not\.(?:be\.)?(?:null|undefined)|to\.be\.an?\(|assertDoesNotThrow|notNullValue\(|assertNotFalse|expectNotToPerformAssertions|BeNull\(`)
	holdsPartly = re(`(?i)contain|\binclude|to_?match|assert_?in\b|assert_?regex|assert_?match|hasprefix|startswith|start_with|endswith|tohaveproperty|tohavelength|assert_?less|assert_?greater|indelta|closeto|almostequal|tobegreater|tobeless|anyof|oneof|\bin \[|\bin \(| > | < | >= | <= `)
	errorCheck  = re(`\b\w*[eE]rr\w* [!=]= nil\b|\.NoError\(|\bassertNoThrow|err == nil`)
	sameTwice   = re(`(?i)(?:assert_?equals?|equal|assert_eq!|toBe|toEqual|deepEqual|same)\w*\s*\(\s*(?:t,\s*)?([\w."']+),\s*([\w."']+)\s*\)|(?:^|\s)assert ([\w.()]+) == ([\w.()]+)\s*$|expect\(([^()]+)\)\.to(?:Be|Equal|StrictEqual)\(([^()]+)\)|\bif ([\w.()]+) != ([\w.()]+) \{`)
	// word of assertions themselves, which say nothing about what is asserted.
	identifier = re(`[A-Za-z_]\w{2,}`)
)

// setUp is Go's way to call something that is not under test.
var setUp = re(`^if (?:_, )*\w*err := .*; \w*err != nil \{$`)

var asserting = re(`(?i)assert|check|expect|verify|want`)

func strength(line string) int {
	// In Go an assertion is the condition of its failure: each part of an "or" asks for something.
	if parts := strings.Split(line, " || "); len(parts) > 1 && strings.HasPrefix(line, "if ") {
		most := always
		for _, p := range parts {
			most = max(most, strength(strings.TrimPrefix(p, "if ")))
		}
		return most
	}
	switch {
	case holdsAlways.MatchString(line), itself(line):
		return always
	case errorCheck.MatchString(line):
		return partial
	case holdsNearly.MatchString(line):
		return broad
	case holdsPartly.MatchString(line):
		return partial
	}
	return exact
}

// itself reports whether a value is compared with itself.
func itself(line string) bool {
	m := sameTwice.FindStringSubmatch(line)
	for i := 1; i+1 < len(m); i += 2 {
		if m[i] != "" && strings.TrimSpace(m[i]) == strings.TrimSpace(m[i+1]) && !strings.Contains(m[i], "(") {
			return true
		}
	}
	return false
}

// assertion is a line that can fail a test.
type assertion struct {
	line int
	text string // squeezed, for Go the condition before it
}

// goFail ends in a report of a failure; what was asserted is the condition above it.
var goFail = re(`\b\w{1,3}\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(`)

// assertions are the lines of a test that can fail it.
func (t *testFunc) assertions() (out []assertion) {
	s := t.src
	for i := t.start; i <= t.end && i < len(s.code); i++ {
		line := s.code[i]
		if t.src.lang.rules.assert.MatchString(line) && i != t.decl || i == t.decl && t.end == t.decl && t.src.lang.rules.assert.MatchString(line) {
			a := assertion{i, squeeze(s.full[i])}
			if s.lang == golang && goFail.MatchString(line) {
				for j := i - 1; j > t.decl && j >= i-3; j-- {
					if body := strings.TrimSpace(s.code[j]); strings.HasPrefix(body, "if ") || strings.HasPrefix(body, "} else") || strings.HasPrefix(body, "case ") || strings.HasPrefix(body, "switch ") {
						a = assertion{j, squeeze(s.full[j])}
						break
					}
				}
			} else if strings.HasSuffix(strings.TrimSpace(line), "(") { // its values are on the next lines
				for j := i + 1; j <= t.end && j <= i+3 && j < len(s.full); j++ {
					a.text += " " + squeeze(s.full[j])
				}
			}
			out = append(out, a)
		}
	}
	return out
}

// findWeakened flags tests that ask less than before.
func (fs *flagger) findWeakened(s *suites) {
	for _, p := range s.pairs {
		if fs.late() {
			return
		}
		if len(p.was.matching(p.was.src.lang.rules.skip)) == 0 && len(p.is.matching(p.is.src.lang.rules.skip)) > 0 {
			continue // it is flagged as skipped
		}
		fs.weakenedTest(s, p)
	}
	for _, t := range s.added {
		as := t.assertions()
		if len(as) > 0 {
			for _, a := range as {
				if strength(a.text) > always {
					as = nil
					break
				}
			}
			if len(as) > 0 && t.src.lang != golang {
				fs.at(workorder.FlagTestWeakened, t, as[0].line, "a new test whose assertions always hold: %s", as[0].text)
			}
		}
	}
	for _, f := range s.files {
		fs.findMuteHelpers(f)
		fs.findMocked(f)
		fs.fewerCases(s, f)
	}
}

// maxCompared bounds the assertions of one test that are compared each with each.
const maxCompared = 100

func (fs *flagger) weakenedTest(s *suites, p testPair) {
	removed, added := difference(p.was.assertions(), p.is.assertions())
	if at, was, is := tolerance(p); at >= 0 {
		fs.at(workorder.FlagTestWeakened, p.is, at, "%s: the tolerance grew from %s to %s", p.is.leaf, was, is)
		return
	}
	if n := swallowed(p.is) - swallowed(p.was); n > 0 {
		fs.at(workorder.FlagTestWeakened, p.is, p.is.decl, "%s: errors are caught and dropped now", p.is.leaf)
		return
	}
	if at := mocked(p); at >= 0 {
		fs.at(workorder.FlagTestWeakened, p.is, at, "%s: what it tests is replaced by a stand-in: %s", p.is.leaf, squeeze(p.is.src.full[at]))
		return
	}
	if at := guarded(p); at >= 0 {
		fs.at(workorder.FlagTestWeakened, p.is, at, "%s: asserts only %s", p.is.leaf, squeeze(p.is.src.full[at]))
		return
	}
	for _, a := range added {
		if strength(a.text) == always {
			fs.at(workorder.FlagTestWeakened, p.is, a.line, "%s: always holds: %s", p.is.leaf, a.text)
			return
		}
	}
	for _, a := range added {
		for _, r := range removed {
			if r.text == "await "+a.text {
				fs.at(workorder.FlagTestWeakened, p.is, a.line, "%s: nobody waits for the assertion: %s", p.is.leaf, a.text)
				return
			}
		}
	}
	removed = s.notMoved(p, removed)
	gained := len(added) + fs.byHelpers(s, p) + newRows(p)
	if lost := len(removed) - gained; lost > 0 && (len(added) == 0 || !sameAsked(p, removed, added)) {
		fs.at(workorder.FlagTestWeakened, p.is, p.is.decl, "%s: fewer assertions by %d; gone: %s", p.is.leaf, lost, removed[0].text)
		return
	}
	removed, added = removed[:min(len(removed), maxCompared)], added[:min(len(added), maxCompared)]
	if !fewerExact(removed, added) {
		return
	}
	for _, a := range added {
		is := strength(a.text)
		for _, r := range removed {
			if is < exact && strength(r.text) == exact && related(r.text, a.text) {
				fs.at(workorder.FlagTestWeakened, p.is, a.line, "%s: asks less: %q was %q", p.is.leaf, a.text, r.text)
				return
			}
		}
	}
}

func fewerExact(removed, added []assertion) bool {
	n := 0
	for _, r := range removed {
		if strength(r.text) == exact {
			n++
		}
	}
	for _, a := range added {
		if strength(a.text) == exact {
			n--
		}
	}
	return n > 0
}

// related reports whether two assertions are about something of the same name.
func related(a, b string) bool {
	x, _, _ := strings.Cut(a, ")")
	if y, _, _ := strings.Cut(b, ")"); x == y {
		return true
	}
	words := map[string]bool{}
	for _, w := range identifier.FindAllString(a, 40) {
		words[w] = true
	}
	for _, w := range identifier.FindAllString(b, 40) {
		switch strings.ToLower(w) {
		case "assert", "expect", "self", "true", "false", "nil", "none", "not", "equal", "equals", "assertequal", "assertequals", "err", "require", "tobe", "toequal", "want", "the", "should", "assertthat", "len":
			continue
		}
		if words[w] {
			return true
		}
	}
	return false
}

// difference are the assertions that only one side has.
func difference(was, is []assertion) (removed, added []assertion) {
	count := map[string]int{}
	for _, a := range is {
		count[a.text]++
	}
	for _, a := range was {
		if count[a.text]--; count[a.text] < 0 {
			removed = append(removed, a)
		}
	}
	for _, a := range is {
		if count[a.text] > 0 {
			count[a.text]--
			added = append(added, a)
		}
	}
	return removed, added
}

// notMoved leaves out assertions that stand elsewhere now, in a helper or in a test
// that was split off, and those whose values are in a table now.
func (s *suites) notMoved(p testPair, removed []assertion) (out []assertion) {
	own := map[string]int{}
	for _, i := range p.is.lines() {
		own[squeeze(p.is.src.full[i])]++
	}
	for _, a := range removed {
		line := squeeze(p.was.src.full[a.line])
		if s.addedLines[line] > 0 && own[line] == 0 {
			s.addedLines[line]--
			continue
		}
		vs := values(a.text)
		moved := len(vs) > 0
		for _, v := range vs {
			moved = moved && len(v) > 1 && s.addedValues[v]
		}
		if !moved && (!setUp.MatchString(a.text) || asserting.MatchString(a.text)) {
			out = append(out, a)
		}
	}
	return out
}

// byHelpers is the number of assertions that new calls of helpers make.
func (fs *flagger) byHelpers(s *suites, p testPair) (n int) {
	for _, i := range p.fresh() {
		for _, w := range identifier.FindAllString(p.is.src.code[i], 20) {
			n += s.helpers[w]
		}
	}
	return n
}

// newRows counts the cases that a test has gained: assertions one by one become a table.
func newRows(p testPair) (n int) {
	for _, i := range p.fresh() {
		if row.MatchString(p.is.src.code[i]) {
			n++
		}
	}
	return n
}

var (
	number  = re(`-?\b\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?\b`)
	tolWord = re(`(?i)toler|epsilon|\beps\b|delta|approx|close_?to|almost|within|\brel\b|\babs\b|rtol|atol|abs_diff|precision|places|ulps`)
	tolThan = re(`(?i)\b(?:abs|fabs|Abs|Math\.abs)\b.*[<>]`)
	digits  = re(`(?i)toBeCloseTo|places|precision|decimal`)
	delta3  = re(`(?i)\bassert(?:Equals|\.Equal|_in_delta|AreEqual)\b.*,.*,\s*\d*\.\d+`)
)

// tolerance finds a line of a test that is the same but for a tolerance that grew.
func tolerance(p testPair) (at int, was, is string) {
	shape := func(l string) string { return number.ReplaceAllString(l, "#") }
	old := map[string][]string{}
	for _, i := range p.was.lines() {
		l := squeeze(p.was.src.full[i])
		if sh := shape(l); len(old[sh]) < maxCompared {
			old[sh] = append(old[sh], l)
		}
	}
	now := map[string]bool{}
	for _, i := range p.is.lines() {
		now[squeeze(p.is.src.full[i])] = true
	}
	for _, i := range p.is.lines() {
		l := squeeze(p.is.src.full[i])
		if !tolWord.MatchString(l) && !tolThan.MatchString(l) && !delta3.MatchString(l) {
			continue
		}
		for _, o := range old[shape(l)] {
			if now[o] {
				continue
			}
			a, b := number.FindAllString(o, -1), number.FindAllString(l, -1)
			k := len(a) - 1
			for k >= 0 && (k >= len(b) || a[k] == b[k]) {
				k--
			}
			if k < 0 {
				continue
			}
			x, y := magnitude(a[k]), magnitude(b[k])
			if digits.MatchString(l) && x > y || !digits.MatchString(l) && y >= 2*x && x > 0 {
				return i, a[k], b[k]
			}
		}
	}
	return -1, "", ""
}

func magnitude(s string) float64 {
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil {
		return math.NaN()
	}
	return math.Abs(f)
}

// row is a line that is one case of a table, on masked code.
var row = re(`^\s*(?:\{.*["'\d].*\},?|\[.*["'\d].*\],?|\(.*["'\d].*\),?|(?:"\s*"|'\s*'|\w+):\s*[{\[].*[}\]],?|.*\.Run\("\s*",.*|\[(?:InlineData|TestCase)\(.*|#\[(?:case|test_case)\b.*|(?:"\s*"|'\s*'),?)\s*$`)

// loneString is a row in lists of names, and an import in Go.
var loneString = re(`^\s*"\s*"\s*$`)

func isRow(s *source, i int) bool {
	return row.MatchString(s.code[i]) && (s.lang != golang || !loneString.MatchString(s.code[i]))
}

// fewerCases flags tables of tests that lost rows.
func (fs *flagger) fewerCases(s *suites, f *testFile) {
	if f.old == nil || f.new == nil {
		return
	}
	gone := map[*source]map[int]bool{f.old: {}}
	for _, t := range s.deleted {
		if t.src == f.old {
			for i := t.start; i <= t.end; i++ {
				gone[f.old][i] = true
			}
		}
	}
	count := map[string]int{}
	for i := range f.new.code {
		if isRow(f.new, i) {
			count[squeeze(f.new.full[i])]++
		}
	}
	var lost []string
	for i := range f.old.code {
		if gone[f.old][i] || !isRow(f.old, i) {
			continue
		}
		l := squeeze(f.old.full[i])
		if count[l]--; count[l] >= 0 || s.addedLines[l] > 0 {
			continue
		}
		lives := true
		for _, v := range values(l) {
			lives = lives && s.addedValues[v]
		}
		if !lives {
			lost = append(lost, l)
		}
	}
	gained := 0
	for _, n := range count {
		gained += max(n, 0)
	}
	if n := len(lost) - gained; n > 0 {
		fs.line(workorder.FlagTestWeakened, f.newPath, 0, fmt.Sprintf("%d cases fewer; gone: %s", n, lost[0]))
	}
}
