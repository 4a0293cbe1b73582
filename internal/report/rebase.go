package report

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type rebased struct {
	Line      string // a sentence
	Backup    string
	Kept      string
	Conflicts list[string]
	Moved     list[movedCommit]
	Text      string // git's range-diff
	TextCut   bool
}

type movedCommit struct{ Old, New, Subject, How, Why string }

// inComment bounds a comment: GitHub accepts 65,536 characters, and an escaped one can be eight.
var inComment = bounds{text: 12_000, line: 120, items: 60, inner: 20}

func showRebased(r *workorder.Rebased, b bounds) *rebased {
	out := &rebased{Backup: line(r.Backup, 2*b.line), Kept: line(r.Kept, 2*b.line)}
	if !r.Pushed {
		out.Line = fmt.Sprintf("The branch was not moved onto %s.", line(r.Onto, b.line))
	} else {
		out.Line = fmt.Sprintf("The branch was moved onto %s, from base %s to %s: %s.", line(r.Onto, b.line), short(r.OldBase),
			short(r.NewBase), counted(r.Moved))
	}
	out.Conflicts = firsts(r.Conflicts, b.inner, func(s string) string { return line(s, b.line) })
	out.Moved = firsts(r.Moved, b.items, func(m workorder.RangePair) movedCommit {
		return movedCommit{short(m.Old), short(m.New), line(m.Subject, b.line), line(m.How, 20), line(m.Reason, b.line*2)}
	})
	out.Text, out.TextCut = block(r.Text, b.text)
	return out
}

func short(sha string) string { return line(sha[:min(len(sha), 7)], 7) }

// counted describes how many commits were rebased in which way.
func counted(pairs []workorder.RangePair) string {
	n := map[string]int{}
	for _, p := range pairs {
		n[p.How]++
	}
	var say []string
	for _, how := range []string{workorder.RangeSame, workorder.RangeChanged, workorder.RangeDropped, workorder.RangeAdded} {
		if n[how] > 0 {
			say = append(say, number(int64(n[how]))+" "+how)
		}
	}
	if len(say) == 0 {
		return "no commits"
	}
	return strings.Join(say, ", ")
}

func (m *md) rebase(p *page) {
	if p.Rebased == nil {
		return
	}
	m.heading("Rebase")
	m.rebased(p.Rebased)
}

func (m *md) rebased(r *rebased) {
	m.f("%s\n\n", esc(r.Line))
	for _, ref := range []struct{ what, name string }{{"The head before is kept as", r.Backup}, {"The new commits are kept as", r.Kept}} {
		if ref.name != "" {
			m.f("%s %s.\n\n", ref.what, code(ref.name))
		}
	}
	if r.Conflicts.Len() > 0 {
		m.f("Files that conflicted:\n\n")
		for _, f := range r.Conflicts.Items {
			m.f("- %s\n", code(f))
		}
		m.more(r.Conflicts.More)
		m.f("\n")
	}
	if r.Moved.Len() > 0 {
		m.f("| Before | After | | Commit | Why |\n|---|---|---|---|---|\n")
		for _, c := range r.Moved.Items {
			m.f("| %s | %s | %s | %s | %s |\n", sha(c.Old), sha(c.New), esc(c.How), esc(c.Subject), esc(c.Why))
		}
		m.f("\n")
		m.more(r.Moved.More)
		if r.Moved.More > 0 {
			m.f("\n")
		}
	}
	if r.Text != "" {
		m.fold("What <code>git range-diff</code> says")
		m.f("%s", pre(r.Text))
		if r.TextCut {
			m.f("\nShortened.\n")
		}
		m.endFold()
	}
}

func sha(s string) string {
	if s == "" {
		return "–"
	}
	return "<code>" + escCode(s) + "</code>"
}

// RangeDiff returns the comment on a pull request whose branch was rebased.
func RangeDiff(r *workorder.Rebased) string {
	b := inComment
	for {
		m := &md{}
		m.heading("Rebased")
		m.rebased(showRebased(r, b))
		m.f("<sub>Written by sandbox-agent's runner, which the agent cannot reach: it compared the commits itself.</sub>\n")
		if s := m.String(); len(s) <= maxMarkdown {
			return s
		}
		b = b.halved()
	}
}
