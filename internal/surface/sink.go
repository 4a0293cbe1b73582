package surface

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// group is what was found of one kind in one file.
type group struct {
	workorder.SurfaceFinding
	n int
}

// sink takes what the checks find, and merges as it goes: one line for each kind of a file.
type sink struct {
	c      *change
	groups map[[2]string]*group
	order  []*group
}

func newSink() *sink { return &sink{groups: map[[2]string]*group{}} }

// add notes something about the current file. The first stays, unless a graver one comes.
func (s *sink) add(kind string, line int, grave bool, format string, args ...any) {
	f := workorder.SurfaceFinding{Kind: kind, Path: s.c.path, Line: line, Grave: grave, Text: fmt.Sprintf(format, args...)}
	key := [2]string{kind, s.c.path}
	g := s.groups[key]
	switch {
	case g == nil:
		g = &group{SurfaceFinding: f}
		s.groups[key] = g
		s.order = append(s.order, g)
	case grave && !g.Grave:
		g.SurfaceFinding = f
	}
	g.n++
}

// raise makes the finding of a kind in the current file grave, with a line of its own, unless it is grave already.
func (s *sink) raise(kind string, line int, format string, args ...any) {
	g := s.groups[[2]string{kind, s.c.path}]
	if g == nil {
		s.add(kind, line, true, format, args...)
	} else if !g.Grave {
		g.Grave, g.Line, g.Text = true, line, fmt.Sprintf(format, args...)
	}
}

// found reports whether the current file has a finding of a kind.
func (s *sink) found(kind string) bool { return s.groups[[2]string{kind, s.c.path}] != nil }

// findings is the report: copied code in one line for each folder, many findings of one kind in one,
// sorted by kind, bounded.
func (s *sink) findings() []workorder.SurfaceFinding {
	place := rank()
	gs := foldVendored(s.order)
	slices.SortStableFunc(gs, func(a, b *group) int {
		return cmp.Or(-boolCompare(a.Grave, b.Grave), place[a.Kind]-place[b.Kind], strings.Compare(a.Path, b.Path), a.Line-b.Line)
	})
	count := map[string]int{}
	last := map[string]*group{}
	rest := map[string][]string{}
	var out []*group
	for _, g := range gs {
		key := fmt.Sprint(g.Kind, g.Grave)
		limit := perKind
		if g.Grave {
			limit = perGraveKind
		}
		if count[key]++; count[key] > limit || len(out) >= maxFindings {
			rest[key] = append(rest[key], g.Path)
			continue
		}
		last[key] = g
		out = append(out, g)
	}
	fs := make([]workorder.SurfaceFinding, 0, len(out))
	for _, g := range out {
		f := g.SurfaceFinding
		if g.n > 1 {
			f.Text += fmt.Sprintf("; and %d more in this file", g.n-1)
		}
		if key := fmt.Sprint(g.Kind, g.Grave); last[key] == g && len(rest[key]) > 0 {
			f.Text += fmt.Sprintf("; and %s more of this kind: %s", plural(len(rest[key]), "file"), strings.Join(rest[key][:min(len(rest[key]), namedRest)], ", "))
		}
		f.Text = visible(f.Text, maxText)
		f.Path = visible(f.Path, maxPath)
		fs = append(fs, f)
	}
	return fs
}

// foldVendored makes one group of all that was found in a folder of copied code: the gravest, and how much else.
func foldVendored(gs []*group) []*group {
	place := rank()
	var out []*group
	roots := map[string]*group{}
	files := map[string]int{}
	for _, g := range gs {
		root := vendorRoot(g.Path)
		if root == "" {
			out = append(out, g)
			continue
		}
		files[root]++
		was := roots[root]
		if was == nil {
			copied := *g
			roots[root] = &copied
			out = append(out, roots[root])
			continue
		}
		if g.Grave && !was.Grave || g.Grave == was.Grave && place[g.Kind] < place[was.Kind] {
			*was = *g
		}
	}
	for root, g := range roots {
		g.Text = fmt.Sprintf("%s: %s", g.Kind, g.Text)
		if n := files[root]; n > 1 {
			g.Text = fmt.Sprintf("%s of copied code in %s; the first is %s", plural(n, "finding"), root, g.Text)
		}
		g.Kind, g.n = kindVendored, 1
	}
	return out
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
