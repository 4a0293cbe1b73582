package report

import (
	"cmp"
	"fmt"
	"html"
)

func (m *md) pictures(p *page) {
	if p.Pictures.Len()+p.Media.Len()+p.Troubles.Len() == 0 {
		return
	}
	m.heading("Pictures")
	for _, t := range p.Troubles.Items {
		for _, text := range t.Texts.Items {
			m.f("- ⚠️ %s: %s\n", code(t.Page), esc(text))
		}
		m.more(t.Texts.More)
	}
	m.more(p.Troubles.More)
	if p.Troubles.Len() > 0 {
		m.f("\n")
	}
	for i, g := range p.Pictures.Items {
		if i == 1 {
			m.fold(plural(p.Pictures.Len()-1, "more page", "more pages"))
		}
		m.shots(g)
	}
	m.more(p.Pictures.More)
	if len(p.Pictures.Items) > 1 {
		m.endFold()
	}
	for _, v := range p.Media.Items {
		m.f("- ▶ %s%s\n", seen(v), spaced(esc(v.Note)))
	}
	m.more(p.Media.More)
	if p.Media.Len() > 0 {
		m.f("\n")
	}
}

// bodyWidth is the width of text in a pull request on GitHub, in pixels.
const bodyWidth = 780

// shots formats a group of pictures as a table, in which they stand side by side and shrink.
func (m *md) shots(g picture) {
	m.f("%s%s\n\n<table>\n<tr>", bold(g.Title), spaced(esc(g.Note)))
	for _, s := range g.Shots {
		m.f("<th>%s</th>", esc(s.Label))
	}
	m.f("</tr>\n<tr>")
	for _, s := range g.Shots {
		to := cmp.Or(s.Beside, s.URL) // who opens the report where it lies may not be logged in at the forge
		if to == "" {
			m.f("<td>%s</td>", seen(s))
			continue
		}
		size := ""
		if s.Width > 0 {
			size = fmt.Sprintf(` width="%d"`, min(s.Width, bodyWidth/len(g.Shots)))
		}
		u := html.EscapeString(to)
		m.f(`<td><a href="%s"><img src="%s" alt="%s"%s></a></td>`, u, u, escCode(s.Label+": "+s.Name), size)
	}
	m.f("</tr>\n</table>\n\n")
}

// seen formats a file of evidence, by its link or its path.
func seen(e media) string {
	if e.Beside != "" {
		return `<a href="` + html.EscapeString(e.Beside) + `">` + esc(e.Name) + `</a>`
	}
	if e.URL != "" {
		return link(esc(e.Name), e.URL)
	}
	if e.Path == "" {
		return esc(e.Name)
	}
	return esc(e.Name) + " (" + "in the result: <code>" + escCode(e.Path) + "</code>)"
}
