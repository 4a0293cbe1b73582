package report

import "strings"

func (p *page) asked(d Data, b bounds) {
	p.Task, p.TaskCut = block(d.Order.Task, b.text)
	p.IssueURL = webAddress(d.Order.IssueURL)
	// The newest are shown: they are the reason for the attempt. They must leave space for the proof.
	added := d.Order.Added
	first := max(len(added)-max(b.inner/8, 1), 0)
	for _, text := range added[first:] {
		if text, cut := block(text, max(b.text/4, 40)); text != "" {
			p.Added.Items, p.TaskCut = append(p.Added.Items, text), p.TaskCut || cut
		}
	}
	p.Added.More = first
}

func (m *md) asked(p *page) {
	if p.Task != "" {
		m.task(p)
	}
	if len(p.Added.Items) == 0 {
		return
	}
	if p.Added.More > 0 {
		m.more(p.Added.More)
		m.f("\n")
	}
	for _, text := range p.Added.Items {
		m.f("**Added later:**\n\n%s\n", quote(text))
	}
}

func (m *md) task(p *page) {
	head, more := firstRunes(p.Task, shortTask)
	if more {
		if i := strings.LastIndexByte(head, '\n'); i > shortTask/2 {
			head = head[:i]
		}
		head = strings.TrimRight(head, " \n") + " …"
	}
	asked := "Asked for"
	if p.IssueURL != "" {
		asked = "Asked for in " + link("an issue", p.IssueURL)
	}
	m.f("**%s:**\n\n%s\n", asked, quote(head))
	if more {
		m.fold("The whole task")
		m.f("%s", quote(p.Task))
		m.endFold()
	}
}
