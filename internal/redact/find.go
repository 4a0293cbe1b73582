package redact

import (
	"slices"
	"strings"
)

// Finder is an io.Writer that notes which values of a set are in what is written, in any of their forms and however
// they are split over writes.
type Finder struct {
	set   *Set
	state int32
	found map[int32]bool
}

// Finder returns a Finder of s.
func (s *Set) Finder() *Finder { return &Finder{set: s, found: map[int32]bool{}} }

// Write never fails.
func (f *Finder) Write(b []byte) (int, error) {
	if f.set == nil || f.set.m == nil {
		return len(b), nil
	}
	m, s := f.set.m, f.state
	for _, c := range b {
		if s == 0 {
			s = m.root[c]
		} else {
			s = m.step(s, c)
		}
		if n := &m.nodes[s]; n.len > 0 {
			f.found[n.mark] = true
		}
	}
	f.state = s
	return len(b), nil
}

// Names lists the names of the values that were found, sorted.
func (f *Finder) Names() []string {
	var names []string
	for mark := range f.found {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(string(f.set.marks[mark]), "[redacted:"), "]"))
	}
	slices.Sort(names)
	return names
}
