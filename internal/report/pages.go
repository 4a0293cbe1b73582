package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// trouble is a fault of a page: a status of any side, and a browser's errors on head that base does not have.
type trouble struct {
	Page  string // of all widths
	Texts list[string]
}

// maxPages bounds the pages of a result; a runner has a tenth of it.
const maxPages = 200

// fromPages adds the runner's pages to the pictures, including those in no list of evidence.
func fromPages(all []EvidenceLink, p *workorder.Proof) []EvidenceLink {
	if p == nil {
		return all
	}
	at := map[string]int{}
	for i, e := range all {
		at[e.Path] = i
	}
	add := func(e EvidenceLink) {
		if e.Path == "" {
			return
		}
		i, ok := at[e.Path]
		if !ok {
			at[e.Path] = len(all)
			all = append(all, e)
			return
		}
		if have := &all[i]; have.Group == "" {
			have.Kind, have.Group, have.Side, have.Width, have.Height, have.Note = e.Kind, e.Group, e.Side, e.Width, e.Height, e.Note
		}
	}
	for _, g := range p.Pages[:min(len(p.Pages), maxPages)] {
		title, note := fmt.Sprintf("%s at %d px", g.Path, g.Width), differs(g)
		if s := answers(g); s != "" {
			note = strings.TrimPrefix(note+", "+s, ", ")
		}
		one := func(side Side, path string, w, h int) {
			add(EvidenceLink{Name: title, Kind: workorder.EvidenceScreenshot, Path: path, Group: title, Side: side, Width: w, Height: h, Note: note})
		}
		w, h := 0, 0
		for _, v := range []struct {
			side Side
			view *workorder.PageView
		}{{sideBase, g.Base}, {sideHead, g.Head}} {
			if v.view != nil {
				one(v.side, v.view.Picture, v.view.PictureWidth, v.view.PictureHeight)
				w, h = max(w, v.view.PictureWidth), max(h, v.view.PictureHeight)
			}
		}
		one(sideDiff, g.Diff, w, h)
	}
	// The runner's come first: the agent's own are its claim.
	slices.SortStableFunc(all, func(x, y EvidenceLink) int { return ownRank(x) - ownRank(y) })
	return all
}

func ownRank(e EvidenceLink) int {
	if e.Group == "" {
		return 1
	}
	return 0
}

// differs describes how much of a page changed.
func differs(g workorder.PageProof) string {
	switch {
	case g.Differs == nil && g.Base == nil && g.Head != nil:
		return "only seen after"
	case g.Differs == nil && g.Head == nil && g.Base != nil:
		return "only seen before"
	case g.Differs == nil:
		return ""
	case *g.Differs <= 0:
		return "no pixel differs"
	case *g.Differs < 0.001:
		return "less than 0.1 % of the pixels differ"
	}
	return strconv.FormatFloat(min(*g.Differs, 1)*100, 'f', 1, 64) + " % of the pixels differ"
}

// answers describes the status of each side; empty if each seen side answered with 2xx.
func answers(g workorder.PageProof) string {
	before, after := answer(g.Base), answer(g.Head)
	switch {
	case before != "" && before == after:
		return before + " before and after"
	case before != "" && after != "":
		return before + " before, " + after + " after"
	case before != "":
		return before + " before"
	case after != "":
		return after + " after"
	}
	return ""
}

// answer returns the HTTP status of a page that is no success; empty if it is, or is unknown.
func answer(v *workorder.PageView) string {
	if v == nil || v.Status <= 0 || v.Status >= 200 && v.Status < 300 {
		return ""
	}
	return "HTTP " + strconv.Itoa(v.Status)
}

// troubles returns the pages' faults, each page once for all of its widths.
func (p *page) troubles(r *workorder.Result, b bounds) {
	if r.Proof == nil {
		return
	}
	type pageTroubles struct {
		path          string
		before, after []string
		texts         []string
	}
	var pages []*pageTroubles
	for _, g := range r.Proof.Pages[:min(len(r.Proof.Pages), maxPages)] {
		i := slices.IndexFunc(pages, func(s *pageTroubles) bool { return s.path == g.Path })
		if i < 0 {
			i = len(pages)
			pages = append(pages, &pageTroubles{path: g.Path})
		}
		if t := answers(g); t != "" && !slices.Contains(pages[i].texts, t) {
			pages[i].texts = append(pages[i].texts, t)
		}
		pages[i].before = append(pages[i].before, complaints(g.Base)...)
		pages[i].after = append(pages[i].after, complaints(g.Head)...)
	}
	var all []trouble
	for _, s := range pages {
		texts := s.texts
		for _, t := range s.after {
			if said := "new: " + t; !slices.Contains(s.before, t) && !slices.Contains(texts, said) {
				texts = append(texts, said)
			}
		}
		if len(texts) > 0 {
			all = append(all, trouble{Page: line(s.path, b.line), Texts: firsts(texts, min(b.items, maxTroubles),
				func(t string) string { return line(t, b.line) })})
		}
	}
	p.Troubles = firsts(all, b.items, func(t trouble) trouble { return t })
}

const maxTroubles = 10

// complaints returns the lists of a view as texts of one kind.
func complaints(v *workorder.PageView) []string {
	if v == nil {
		return nil
	}
	var all []string
	if v.Error != "" {
		all = append(all, "could not be looked at: "+v.Error)
	}
	all = append(all, v.Console...)
	for _, f := range v.Failed {
		all = append(all, "request "+f)
	}
	return all
}
