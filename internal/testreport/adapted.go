package testreport

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// findAdapted flags tests that failed on base and pass on head, and that ask for something else now. A
// test that passed on base and was changed together with the code is a change of behaviour, which is honest work.
func (fs *flagger) findAdapted(s *suites, o Observed) {
	fixed := map[string]bool{}
	for _, c := range o.Tests {
		if c.Transition == workorder.Fixed {
			fixed[leaf(c.Name)] = true
		}
	}
	silent := len(o.Fixed) > 0 && len(o.Tests) == 0 // no report says which of them failed
	for _, p := range s.pairs {
		if fs.late() {
			return
		}
		if !silent && !fixed[p.was.leaf] && !fixed[p.is.leaf] || fs.explained[p.is.leaf] {
			continue
		}
		removed, added := difference(p.was.asked(), p.is.asked())
		if len(removed) == 0 || sameAsked(p, removed, added) {
			continue
		}
		at, now := p.is.decl, ""
		if len(added) > 0 {
			at, now = added[0].line, fmt.Sprintf("%q ", added[0].text)
		}
		who := p.is.leaf + " failed on base and passes now, and it"
		if silent {
			who = fmt.Sprintf("check %s failed on base and passes now, and %s", strings.Join(o.Fixed, ", "), p.is.leaf)
		}
		fs.at(workorder.FlagTestWeakened, p.is, at, "%s asks for something else: %swas %q", who, now, removed[0].text)
	}
}

// asked are the assertions of a test and the rows of its tables.
func (t *testFunc) asked() []assertion {
	out := t.assertions()
	have := map[int]bool{}
	for _, a := range out {
		have[a.line] = true
	}
	for _, i := range t.lines() {
		if isRow(t.src, i) && !have[i] {
			out = append(out, assertion{i, squeeze(t.src.full[i])})
		}
	}
	return out
}

// besides are files that no program is built from: what changes in them mends nothing that a test could notice.
var besides = re(`(?i)\.(?:md|rst|adoc|txt)$|(?:^|/)(?:LICENSE|CHANGELOG|AUTHORS)[^/]*$`)

// findTestsOnly flags that what failed passes though nothing but tests was changed, where no other rule has said so.
func (fs *flagger) findTestsOnly(c *change, o Observed) {
	var fixed []string
	for _, t := range o.Tests {
		if t.Transition == workorder.Fixed {
			fixed = append(fixed, leaf(t.Name))
		}
	}
	if len(fixed)+len(o.Fixed) == 0 {
		return
	}
	first := ""
	for _, f := range c.files {
		for _, p := range []string{f.oldPath, f.newPath} {
			switch {
			case p == "" || besides.MatchString(p):
			case isTestFile(p) || support.MatchString(p) || expectation.MatchString(p):
				first = p
			default:
				return
			}
		}
	}
	for _, f := range fs.flags {
		switch f.Kind {
		case workorder.FlagTestDeleted, workorder.FlagTestSkipped, workorder.FlagTestWeakened, workorder.FlagCheckEdited:
			return
		}
	}
	if first == "" {
		return
	}
	what := "check " + strings.Join(o.Fixed, ", ")
	if len(fixed) > 0 {
		what = named(fixed)
	}
	fs.line(workorder.FlagTestWeakened, first, 0, "failed on base and passes now though nothing but tests was changed: "+what)
}

// wayOut are the words by which an assertion lets more pass.
var wayOut = re(`\bor\b|\|\||\bin \(|\bnot\b|!=|approx|isclose|(?i:closeto)`)

// sameAsked reports whether what is asked for now has all values of what was asked, no weaker and with no way out: it is said in another way.
func sameAsked(p testPair, removed, added []assertion) bool {
	have, weakest := map[string]int{}, exact
	for _, i := range p.fresh() {
		for _, v := range values(p.is.src.full[i]) {
			have[v]++
		}
	}
	for _, a := range added {
		weakest = min(weakest, strength(a.text))
	}
	n := 0
	for _, r := range removed {
		if strength(r.text) > weakest {
			return false
		}
		for _, v := range values(r.text) {
			n++
			if have[v]--; have[v] < 0 {
				return false
			}
		}
	}
	return n > 0 && waysOut(added) <= waysOut(removed)
}

func waysOut(as []assertion) (n int) {
	for _, a := range as {
		n += len(wayOut.FindAllString(a.text, -1))
	}
	return n
}
