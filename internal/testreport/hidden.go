package testreport

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// An assertion that is still there can be kept from failing its test: by an error that is caught, by a condition.

var (
	// failureWanted is where a test asks for its assertions to fail.
	failureWanted = re(`\braises\(\s*(?:AssertionError|Exception|BaseException)\s*\)|assertThrows\(\s*(?:AssertionError|Throwable|Error)\.class|@Test\(.*\bexpected\s*=\s*(?:AssertionError|Throwable|Error)\.class|assertRaises\(\s*AssertionError`)
	// passesOn are the words of a handler that something comes of.
	passesOn = re(`\b(?:raise|throw|fail|exit|reject|done)\b|panic\(`)
	// catches are the errors of a handler that are an assertion's, by language; narrow says that a handler is for some errors only.
	javaCatches   = re(`AssertionError|Throwable|Error\b`)
	pythonCatches = re(`AssertionError`)
	pythonNarrow  = re(`^\s*except\s+(?:\w+Error|\(.*)\b`)
	guard         = re(`^\s*if\b`)
)

// swallowed counts what hides errors in a test.
func swallowed(t *testFunc) (n int) {
	r := t.src.lang.rules
	for _, i := range t.matching(r.swallow) {
		if !recoversToFail(t, i) {
			n++
		}
	}
	n += len(t.matching(failureWanted))
	for _, i := range t.matching(r.handler) {
		empty := emptyBlock(t.src, i, r.handler) && (t.src.lang != python || assertsWithin(t, i))
		if empty || quietHandler(t, i) {
			n++
		}
	}
	return n
}

// recoversToFail reports whether what a test in Go recovers fails it.
func recoversToFail(t *testFunc, i int) bool {
	if t.src.lang != golang || !strings.Contains(t.src.code[i], "= recover();") {
		return false
	}
	for j := i + 1; j <= i+3 && j < t.end && !strings.HasPrefix(strings.TrimSpace(t.src.code[j]), "}"); j++ {
		if goFail.MatchString(t.src.code[j]) {
			return true
		}
	}
	return false
}

// emptyBlock reports whether the block that a line opens has nothing in it.
func emptyBlock(s *source, i int, opens *pattern.Pattern) bool {
	at := opens.FindStringIndex(s.code[i])
	rest := strings.TrimSpace(s.code[i][at[1]:])
	for j := i + 1; rest == "" && j < len(s.code) && j <= i+4; j++ {
		rest = strings.TrimSpace(s.code[j])
	}
	if s.lang == python {
		return rest == "pass" || rest == "..." || rest == "return" || rest == "continue"
	}
	return strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, "return;") || strings.HasPrefix(rest, "return }")
}

// quietHandler reports whether a handler catches an assertion's failure, and nothing comes of it.
func quietHandler(t *testFunc, i int) bool {
	s := t.src
	switch {
	case s.lang == java && !javaCatches.MatchString(s.code[i]):
		return false
	case s.lang == python && pythonNarrow.MatchString(s.code[i]) && !pythonCatches.MatchString(s.code[i]):
		return false
	case !assertsWithin(t, i):
		return false
	}
	w := indent(s.code[i])
	for j := i + 1; j <= t.end && j < len(s.code) && (indent(s.code[j]) > w || indent(s.code[j]) < 0); j++ {
		if s.lang.rules.assert.MatchString(s.code[j]) || passesOn.MatchString(s.code[j]) {
			return false
		}
	}
	return true
}

// assertsWithin reports whether an assertion stands in the block that a handler belongs to.
func assertsWithin(t *testFunc, i int) bool {
	w := indent(t.src.code[i])
	for j := i - 1; j > t.decl; j-- {
		if t.src.lang.rules.assert.MatchString(t.src.code[j]) {
			return true
		}
		if in := indent(t.src.code[j]); in >= 0 && in <= w {
			return false
		}
	}
	return false
}

// guarded is a new condition above an assertion that was there without one; -1: there is none. In Go an assertion is a condition itself.
func guarded(p testPair) int {
	if p.is.src.lang == golang {
		return -1
	}
	asked := map[string]bool{}
	for _, a := range p.was.assertions() {
		asked[a.text] = true
	}
	fresh := map[int]bool{}
	for _, i := range p.fresh() {
		fresh[i] = true
	}
	code := p.is.src.code
	for _, a := range p.is.assertions() {
		if i := a.line - 1; asked[a.text] && fresh[i] && guard.MatchString(code[i]) && indent(code[i]) < indent(code[a.line]) {
			return i
		}
	}
	return -1
}
