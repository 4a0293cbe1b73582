package testreport

import (
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// numbers are the varying parts of tests' names: addresses, times, ports.
var numbers = lazyregexp.New(`0x[0-9a-fA-F]+|[0-9]+`)

// steady gives tests whose names vary between runs one name, so that they are compared. Two runs of base must show that
// they vary, so that a task that renames tests hides none. The given reports stay unchanged.
func steady(base, head []*Report) (b, h []*Report) {
	runs := 0
	in := map[testKey]int{} // runs that have a test of that name
	each := func(reps []*Report, do func(*Report)) {
		for _, r := range reps {
			if r != nil {
				do(r)
			}
		}
	}
	names := func(r *Report) {
		runs++
		seen := map[testKey]bool{}
		for _, t := range r.Tests {
			if k := (testKey{t.Suite, t.Name}); !seen[k] {
				seen[k] = true
				in[k]++
			}
		}
	}
	each(base, names)
	if runs < 2 {
		return base, head
	}
	each(head, names)
	forms := map[testKey][]int{} // how many names of that form each run has for itself
	run := 0
	count := func(r *Report) {
		for _, t := range r.Tests {
			if in[testKey{t.Suite, t.Name}] != 1 {
				continue
			}
			k := form(t)
			if forms[k] == nil {
				forms[k] = make([]int, runs)
			}
			forms[k][run]++
		}
		run++
	}
	each(base, count)
	each(head, count)
	return renamed(base, in, forms), renamed(head, in, forms)
}

func form(t Test) testKey { return testKey{t.Suite, numbers.ReplaceAllString(t.Name, "0")} }

// renamed returns reports in which names of one run only have the form's name, if each run has as many of it.
func renamed(reps []*Report, in map[testKey]int, forms map[testKey][]int) []*Report {
	all := make([]*Report, len(reps))
	for i, r := range reps {
		if r == nil {
			continue
		}
		c := *r
		c.Tests = make([]Test, 0, len(r.Tests))
		had := map[testKey]int{}
		for _, t := range r.Tests {
			if in[testKey{t.Suite, t.Name}] == 1 {
				if k := form(t); equal(forms[k]) {
					had[k]++
					t.Name = k.name + " (" + strconv.Itoa(had[k]) + ")"
				}
			}
			c.Tests = append(c.Tests, t)
		}
		all[i] = &c
	}
	return all
}

func equal(counts []int) bool {
	for _, n := range counts {
		if n != counts[0] {
			return false
		}
	}
	return true
}
