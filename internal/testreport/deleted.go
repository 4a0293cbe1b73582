package testreport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxNamed is how many tests a flag names.
const maxNamed = 5

// findDeleted flags tests that are nowhere on head: a flag for a file that went
// with all of them, else one for each.
func (fs *flagger) findDeleted(s *suites) {
	for _, f := range s.files {
		var names []string
		for _, t := range s.deleted {
			if t.src == f.old && !s.livesOn(t) {
				names = append(names, t.leaf)
				fs.explained[t.leaf] = true
			}
		}
		switch {
		case len(names) == 0:
			if f.newPath == "" && len(f.was) == 0 && isTestFile(f.oldPath) && f.old != nil && asserts(f.old) {
				fs.line(workorder.FlagTestDeleted, f.oldPath, 0, "a test file is deleted")
			}
		case f.new == nil:
			what := "deleted"
			if f.newPath != "" {
				what = fmt.Sprintf("now %s, where no runner looks for tests", f.newPath)
			}
			fs.line(workorder.FlagTestDeleted, f.oldPath, 0, fmt.Sprintf("the file is %s, with %s", what, named(names)))
		case len(names) > maxNamed:
			fs.line(workorder.FlagTestDeleted, f.newPath, 0, "deleted: "+named(names))
		default:
			for _, n := range names {
				fs.line(workorder.FlagTestDeleted, f.newPath, 0, "deleted: "+n)
			}
		}
	}
	for _, p := range s.pairs {
		fs.explained[p.was.leaf] = fs.explained[p.was.leaf] || p.was.leaf != p.is.leaf
	}
}

func asserts(s *source) bool { return slices.ContainsFunc(s.code, s.lang.rules.assert.MatchString) }

// named lists the first of many.
func named(names []string) string {
	tests := "tests"
	if len(names) == 1 {
		tests = "test"
	}
	out := fmt.Sprintf("%d %s: %s", len(names), tests, strings.Join(names[:min(len(names), maxNamed)], ", "))
	if len(names) > maxNamed {
		out += ", …"
	}
	return out
}

// reported flags what the reports of base and head tell beyond the sources: what broke,
// and tests that are gone or skipped though no line of a test says so. That happens by
// configuration, by a condition, or in a language that the rules do not know.
func (fs *flagger) reported(changes []workorder.TestChange) {
	fresh := map[string]int{} // new tests by suite and parent
	for _, c := range changes {
		if c.Transition == workorder.NewPasses || c.Transition == workorder.NewFails {
			fresh[parent(c)]++
		}
	}
	var gone, skipped []string
	for _, c := range changes {
		full := strings.TrimPrefix(c.Suite+" > "+c.Name, " > ")
		switch c.Transition {
		case workorder.Broken:
			first, _, _ := strings.Cut(c.Text, "\n")
			fs.line(workorder.FlagBrokenOnHead, "", 0, strings.TrimSuffix(full+": "+first, ": "))
		case workorder.Gone:
			if fs.explained[leaf(c.Name)] {
				continue
			}
			if p := parent(c); fresh[p] > 0 && !strings.HasSuffix(p, "\x00") { // a case of a table that reads otherwise now
				fresh[p]--
				continue
			}
			gone = append(gone, full)
		case workorder.NowSkipped:
			if !fs.explained[leaf(c.Name)] {
				skipped = append(skipped, full)
			}
		}
	}
	if len(gone) > 0 {
		fs.line(workorder.FlagTestDeleted, "", 0, "ran on base and not on head, "+named(gone))
	}
	if len(skipped) > 0 {
		fs.line(workorder.FlagTestSkipped, "", 0, "skipped on head, "+named(skipped))
	}
}

// leaf is a test's own name in a report: without groups, parameters and sub-tests.
func leaf(n string) string {
	if i := strings.LastIndex(n, " > "); i >= 0 {
		n = n[i+3:]
	}
	if strings.HasPrefix(n, "Test") {
		n, _, _ = strings.Cut(n, "/")
	}
	if i := strings.IndexAny(n, "[("); i > 0 {
		n = n[:i]
	}
	return n
}

func parent(c workorder.TestChange) string {
	i := max(strings.LastIndexByte(c.Name, '/'), strings.LastIndex(c.Name, " > "), strings.IndexByte(c.Name, '['))
	return c.Suite + "\x00" + c.Name[:max(i, 0)]
}
