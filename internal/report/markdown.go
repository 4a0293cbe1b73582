package report

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxMarkdown bounds the body, in characters; the rest of GitHub's 65,536 is for additions.
	maxMarkdown = 60_000
	// shortTask bounds the visible part of the task, in characters.
	shortTask = 600
)

// inMarkdown bounds a body; it is halved until the body fits.
var inMarkdown = bounds{text: 4000, line: 160, items: 40, inner: 40, pics: 6}

// Markdown returns the body of the pull request, at most maxMarkdown characters.
func Markdown(d Data) string {
	b := inMarkdown
	for {
		s := writeMarkdown(build(d, b))
		if utf8.RuneCountInString(s) <= maxMarkdown {
			return s
		}
		b = b.halved()
	}
}

// md writes Markdown. Its methods escape text, except text called raw.
type md struct{ strings.Builder }

func (m *md) f(format string, args ...any) { fmt.Fprintf(&m.Builder, format, args...) }

func (m *md) heading(s string) { m.f("### %s\n\n", s) }

// fold opens a folded part; its title is raw.
func (m *md) fold(title string) { m.f("<details>\n<summary>%s</summary>\n\n", title) }

func (m *md) endFold() {
	if !strings.HasSuffix(m.String(), "\n\n") {
		m.f("\n") // else it would be part of the paragraph before
	}
	m.f("</details>\n\n")
}

// bold escapes a text and makes it bold; an empty one stays empty.
func bold(s string) string {
	if s == "" {
		return ""
	}
	return "**" + esc(s) + "**"
}

func (m *md) more(n int) {
	if n > 0 {
		m.f("- and %s more, see the report in the task's result\n", number(int64(n)))
	}
}

var marks = map[tone]string{good: "✅", warn: "⚠️", bad: "❌", wait: "⏸️", calm: "➖"}

func writeMarkdown(p *page) string {
	m := &md{}
	m.asked(p)
	m.f("**%s %s.** %s\n", marks[p.Outcome.Tone], esc(p.Outcome.Word), esc(p.Outcome.Line))
	if p.Outcome.Reason != "" {
		m.f("\n> %s\n", esc(p.Outcome.Reason))
	}
	m.f("\n")
	m.edited(p)
	m.alarms(p)
	m.feedback(p)
	m.proof(p)
	m.pictures(p)
	m.surface(p)
	m.commits(p)
	m.others(p)
	m.rebase(p)
	m.network(p)
	m.claim(p)
	m.cost(p)
	m.next(p)
	m.warnings(p)
	m.f("<sub>%s</sub>\n", esc(p.Footer))
	if p.Later != "" {
		m.f("\n%s\n", esc(p.Later))
	}
	return m.String()
}

func (m *md) edited(p *page) {
	if p.Edited.Len() > 0 {
		m.f("**Edited tests**\n\n")
		for _, f := range p.Edited.Items {
			m.f("- %s\n", located(f))
		}
		m.more(p.Edited.More)
		m.f("\n")
	}
	for _, c := range p.Before {
		end := link(esc(c.Head.Text), c.Head.URL) // no green tick comes before the alarms
		if !c.Head.Passed {
			end = cell(c.Head)
		}
		m.f("Base's tests on head's code, %s: %s\n\n", code(c.Name), end)
	}
}

// alarms come before successes.
func (m *md) alarms(p *page) {
	if n := p.Alarms.Len(); n > 0 {
		m.f("> [!CAUTION]\n> **%s to look at before the checks are believed:**\n>\n", plural(n, "finding", "findings"))
		for _, f := range p.Alarms.Items {
			m.f("> - %s %s\n", bold(f.Title), located(f))
		}
		if p.Alarms.More > 0 {
			m.f("> - and %s more\n", number(int64(p.Alarms.More)))
		}
		m.f("\n")
	}
	if p.Doubts.Len() > 0 {
		m.f("> [!WARNING]\n")
		for i, f := range p.Doubts.Items {
			if i > 0 {
				m.f(">\n")
			}
			m.f("> %s %s\n", bold(f.Title+":"), located(f))
		}
		m.f("\n")
	}
}

func located(f finding) string {
	var parts []string
	if f.Place != "" {
		parts = append(parts, link(code(f.Place), f.URL))
	}
	if f.Text != "" {
		parts = append(parts, esc(f.Text))
	}
	return strings.Join(parts, ": ")
}

func (m *md) proof(p *page) {
	m.heading("Proof")
	pr := p.Proof
	if pr.Checks.Len() == 0 {
		m.f("%s%s\n\n", esc(pr.None), spaced(esc(pr.Reason)))
		return
	}
	if pr.Reason != "" {
		m.f("_Not the whole comparison: %s_\n\n", esc(pr.Reason))
	}
	if pr.Both {
		m.f("| check | before | after | result | tests |\n| --- | --- | --- | --- | --- |\n")
	} else {
		m.f("| check | result | time |\n| --- | --- | --- |\n")
	}
	for _, c := range pr.Checks.Items {
		name := code(c.Name)
		if pr.Both {
			m.f("| %s | %s | %s | %s %s | %s |\n", name, cell(c.Base), cell(c.Head), marks[c.Tone], esc(c.Change), cmp.Or(esc(c.Sum), "–"))
		} else {
			m.f("| %s | %s | %s |\n", name, cell(c.Head), c.Head.Took)
		}
	}
	m.f("\n")
	if pr.Checks.More > 0 {
		m.more(pr.Checks.More)
		m.f("\n")
	}
	for _, c := range pr.Checks.Items {
		m.check(c)
	}
}

func (m *md) check(c check) {
	if n := c.Tests.Len(); n > 0 {
		what := cmp.Or(esc(c.Sum), plural(n, "test", "tests")) // the sum says which of them end as they did before
		m.fold(fmt.Sprintf("<code>%s</code>: %s", escCode(c.Name), what))
		m.f("Command: %s\n\n| | test | |\n| --- | --- | --- |\n", code(c.Command))
		for _, t := range c.Tests.Items {
			name := code(t.Name)
			if t.Suite != "" {
				name += " <sub>" + esc(t.Suite) + "</sub>"
			}
			m.f("| %s | %s | %s |\n", marks[t.Tone], name, esc(t.Change))
		}
		m.f("\n")
		m.more(c.Tests.More)
		for _, t := range c.Tests.Items {
			if t.Text != "" {
				m.f("%s:\n\n%s\n", code(t.Name), pre(t.Text))
			}
		}
		m.endFold()
	}
	if c.Tail != "" {
		m.fold(fmt.Sprintf("<code>%s</code>: end of its output", escCode(c.Name)))
		m.f("Command: %s\n\n%s", code(c.Command), pre(c.Tail))
		m.endFold()
	}
}

func cell(s side) string {
	switch {
	case !s.Ran:
		return "➖ " + esc(s.Text)
	case s.Passed:
		return "✅ " + link(esc(s.Text), s.URL)
	}
	return "❌ " + link(esc(s.Text), s.URL)
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

func (m *md) surface(p *page) {
	if p.Grave.Len()+p.Mild.Len() == 0 {
		return
	}
	m.heading("Runs on your machine or CI")
	for _, f := range p.Grave.Items {
		m.f("- ⚠️ %s %s\n", bold(f.Title), located(f))
	}
	m.more(p.Grave.More)
	if p.Grave.Len() > 0 {
		m.f("\n")
	}
	if n := p.Mild.Len(); n > 0 {
		m.fold(plural(n, "ordinary change", "ordinary changes") + " to what runs")
		for _, f := range p.Mild.Items {
			m.f("- %s %s\n", esc(f.Title), located(f))
		}
		m.more(p.Mild.More)
		m.endFold()
	}
}

func (m *md) others(p *page) {
	if p.Others.Len() == 0 {
		return
	}
	m.heading("Other repositories of this task")
	for _, o := range p.Others.Items {
		m.f("- %s: %s", code(o.Repo), plural(o.Commits, "commit", "commits"))
		if o.Branch != "" {
			m.f(" on %s", code(o.Branch))
		}
		if o.PR > 0 {
			m.f(", pull request %s", link(fmt.Sprintf("#%d", o.PR), o.URL))
		}
		m.f("\n")
	}
	m.more(p.Others.More)
	m.f("\n")
}

func (m *md) commits(p *page) {
	n := p.Commits.Len()
	if n == 0 {
		return
	}
	m.heading("Changes")
	for _, c := range p.Commits.Items {
		m.f("- %s %s", link("<code>"+escCode(c.Short)+"</code>", c.URL), esc(c.Subject))
		if c.Files.Len() > 0 {
			m.f(" (%s, +%s −%s)", plural(c.Files.Len(), "file", "files"), number(int64(c.Added)), number(int64(c.Deleted)))
		}
		m.f("\n")
	}
	m.more(p.Commits.More)
	m.f("\n")
	files := 0
	for _, c := range p.Commits.Items {
		files += len(c.Files.Items)
	}
	if files == 0 {
		return
	}
	m.fold("Files of each commit")
	for _, c := range p.Commits.Items {
		if len(c.Files.Items) == 0 {
			continue
		}
		m.f("%s %s\n\n", "<code>"+escCode(c.Short)+"</code>", esc(c.Subject))
		for _, f := range c.Files.Items {
			m.f("- %s %s\n", code(f.Path), lines(f))
		}
		m.more(c.Files.More)
		m.f("\n")
	}
	m.endFold()
}

func lines(f workorder.FileChange) string {
	if f.Binary {
		return "binary"
	}
	return fmt.Sprintf("+%s −%s", number(int64(f.Added)), number(int64(f.Deleted)))
}

func (m *md) network(p *page) {
	if p.Refused.Len()+p.Learned.Len()+p.Guard.Len() == 0 {
		return
	}
	m.heading("Refused")
	m.reached(p.Refused, fmt.Sprintf("The network policy (%s) refused these:", esc(p.Network)))
	m.reached(p.Learned, "Not refused, since the policy is learning, but no rule allows these:")
	if p.Guard.Len() == 0 {
		return
	}
	m.f("The guard of the sandbox's Docker refused these requests. No line of a project allows them.\n\n")
	for _, g := range p.Guard.Items {
		m.f("- %s %s: %s%s\n", code(g.Rule), times(g.Count), esc(g.Text), by(g.By))
	}
	m.more(p.Guard.More)
	m.f("\n")
}

func (m *md) reached(l list[reach], intro string) {
	if l.Len() == 0 {
		return
	}
	m.f("%s\n\n| where | times | the line under `network.allow` that allows it |\n| --- | --- | --- |\n", intro)
	for _, h := range l.Items {
		rule := cmp.Or(code(h.Line), "none can"+spaced(parens(esc(h.Reason))))
		m.f("| %s %s%s | %s | %s |\n", code(h.Place), esc(h.What), by(h.By), number(h.Count), rule)
	}
	m.f("\n")
	if l.More > 0 {
		m.more(l.More)
		m.f("\n")
	}
}

func parens(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// by returns the actor of a try.
func by(s string) string {
	if s == "" {
		return ""
	}
	return ", by " + code(s)
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return number(n) + " times"
}

func (m *md) claim(p *page) {
	if p.Final == "" {
		return
	}
	m.fold("The agent's own summary (not verified)")
	m.f("%s", quote(p.Final))
	m.endFold()
}

func (m *md) cost(p *page) {
	m.fold("Cost, time and versions: " + esc(p.Cost))
	facts := func(title string, fs []fact) {
		if len(fs) == 0 {
			return
		}
		m.f("**%s**\n\n", title)
		for _, f := range fs {
			m.f("- %s: %s\n", esc(f.Name), code(f.Value))
		}
		m.f("\n")
	}
	if p.Tokens != "" {
		m.f("%s\n\n", esc(p.Tokens))
	}
	if p.Phases.Len() > 0 {
		m.f("| phase | time | |\n| --- | --- | --- |\n")
		for _, s := range p.Phases.Items {
			note := esc(s.Error)
			if s.Status == "failed" {
				note = strings.TrimRight("❌ "+note, " ")
			}
			m.f("| %s | %s | %s |\n", esc(s.Name), s.Took, note)
		}
		m.f("\n")
		m.more(p.Phases.More)
	}
	facts("Run", p.Facts)
	facts("Attempts before", p.Earlier)
	facts("Versions", p.Versions)
	if p.Files.Len() > 0 {
		m.f("**Further evidence**\n\n")
		for _, e := range p.Files.Items {
			m.f("- %s\n", seen(e))
		}
		m.more(p.Files.More)
	}
	m.endFold()
}

func (m *md) next(p *page) {
	if len(p.Next) == 0 {
		return
	}
	m.fold("Revise or take over")
	for _, n := range p.Next {
		m.f("- %s: %s\n", esc(n.Purpose), code(n.Command))
	}
	m.endFold()
}

func (m *md) warnings(p *page) {
	if p.Warnings.Len() == 0 {
		return
	}
	m.fold("⚠️ " + plural(p.Warnings.Len(), "warning", "warnings") + " of the run")
	for _, w := range p.Warnings.Items {
		m.f("- %s\n", esc(w))
	}
	m.more(p.Warnings.More)
	m.endFold()
}
