package testreport

import "github.com/sandbox-agent/sandbox-agent/workorder"

// findMuteHelpers flags functions beside tests that could fail them and cannot any more.
func (fs *flagger) findMuteHelpers(f *testFile) {
	if f.old == nil || f.new == nil || !isTestFile(f.newPath) {
		return
	}
	was, is := helpers(f.old, f.oldOutside), helpers(f.new, f.newOutside)
	for name, h := range was {
		if now := is[name]; now != nil && h.asserts > 0 && now.asserts == 0 {
			fs.line(workorder.FlagTestWeakened, f.newPath, now.line+1, "the helper "+name+" asserts nothing any more")
		}
	}
}

// helper is a function beside tests.
type helper struct {
	line    int // of its declaration
	asserts int // lines that can fail a test, before it leaves
	left    bool
}

func helpers(src *source, outside []int) map[string]*helper {
	all := map[string]*helper{}
	var h *helper
	depth := -1
	for _, i := range outside {
		l := src.code[i]
		if m := function.FindStringSubmatch(l); m != nil && indent(l) == 0 {
			h, depth = &helper{line: i}, -1
			all[m[1]] = h
			continue
		}
		if indent(l) == 0 {
			h = nil // its end, or what follows it
		}
		if h == nil {
			continue
		}
		if depth < 0 {
			depth = indent(l)
		}
		switch r := src.lang.rules; {
		case r.assert.MatchString(l):
			if !h.left {
				h.asserts++
			}
		case indent(l) <= depth && (leaves.MatchString(l) || r.skip.MatchString(l)):
			h.left = true
		}
	}
	return all
}
