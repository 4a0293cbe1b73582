package testreport

import (
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	// replaces is where a name of the code is given another meaning.
	replaces = re(`\b(?:patch|patch\.object|setattr|spyOn|stubGlobal|mocker\.patch)\(`)
	// moduleMock replaces a module (group 1) of JavaScript.
	moduleMock = re(`^\s*(?:jest|vi)\.(?:do)?[mM]ock\(\s*["'](?:[^"']*/)?([^"'/]+?)(?:\.\w+)?["']`)
)

// mocked is a new line that replaces what the test's assertions call; -1: there is none.
func mocked(p testPair) int {
	const least = 3 // letters of a name that says anything
	for _, i := range p.fresh() {
		if !replaces.MatchString(p.is.src.code[i]) {
			continue
		}
		for _, v := range values(p.is.src.full[i]) {
			name := v[strings.LastIndexByte(v, '.')+1:]
			for _, a := range p.is.assertions() {
				if len(name) >= least && calls(p.is.src.code[a.line], name) {
					return i
				}
			}
		}
	}
	return -1
}

// findMocked flags a file of tests that replaces the module that it is named after.
func (fs *flagger) findMocked(f *testFile) {
	if f.old == nil || f.new == nil || f.new.lang != javascript {
		return
	}
	stem, _, _ := strings.Cut(path.Base(f.newPath), ".")
	for _, i := range f.newOutside {
		m := moduleMock.FindStringSubmatch(f.new.full[i])
		if m != nil && m[1] == stem && !strings.Contains(f.oldText, strings.TrimSpace(f.new.full[i])) {
			fs.line(workorder.FlagTestWeakened, f.newPath, i+1, "the module under test is replaced by a stand-in: "+squeeze(f.new.full[i]))
		}
	}
}
