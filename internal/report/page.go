package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type bounds struct {
	text  int // characters of a text of several lines
	line  int // characters of a line
	items int // entries of a list
	inner int // entries of a list within a list
	pics  int // pictures and videos
}

// halved makes a report of about half the length.
func (b bounds) halved() bounds {
	return bounds{max(b.text/2, 40), max(b.line/2, 24), max(b.items/2, 1), max(b.inner/2, 1), max(b.pics/2, 1)}
}

// page is the report before formatting: every text is clean and bounded, none is escaped.
type page struct {
	Title    string
	Task     string
	TaskCut  bool
	Added    list[string] // to the task; More are the oldest
	IssueURL string
	Outcome  outcome
	Later    string // about a later attempt that left the branch as it was
	Facts    []fact
	Edited   list[finding] // test files
	Before   []check       // Head is the run with base's tests on head's code
	Alarms   list[finding] // what speaks against the checks
	Doubts   list[finding] // what the checks do not prove
	Feedback list[feedback]
	Proof    proof
	Pictures list[picture]
	Media    list[media]
	Troubles list[trouble]
	Grave    list[finding]
	Mild     list[finding]
	Commits  list[commit]
	Others   list[other] // of the task's further repositories
	Rebased  *rebased    // nil means it was no rebase
	Refused  list[reach]
	Learned  list[reach]
	Guard    list[refusal]
	Network  string
	Final    string
	FinalCut bool
	Cost     string
	Tokens   string
	Phases   list[phase]
	Earlier  []fact
	Versions []fact
	Next     []NextStep
	Warnings list[string]
	Files    list[media] // evidence that is no picture
	Footer   string
}

// list is the beginning of a list, and the number of further entries.
type list[T any] struct {
	Items []T
	More  int
}

func (l list[T]) Len() int { return len(l.Items) + l.More }

func firsts[S, T any](in []S, n int, f func(S) T) list[T] {
	l := list[T]{More: max(len(in)-n, 0)}
	for _, s := range in[:min(n, len(in))] {
		l.Items = append(l.Items, f(s))
	}
	return l
}

// tone is the color of a statement.
type tone string

const (
	good tone = "good"
	warn tone = "warn"
	bad  tone = "bad"
	wait tone = "wait"
	calm tone = "calm"
)

type outcome struct {
	Tone   tone
	Word   string // one or two words
	Line   string // a sentence
	Reason string // the result's own, quoted
}

type fact struct{ Name, Value, URL string }

// finding is a flag or a changed sensitive file.
type finding struct{ Kind, Title, Place, URL, Text string }

type commit struct {
	SHA, Short, URL, Subject, Author string
	Files                            list[workorder.FileChange]
	Added, Deleted                   int
}

type reach struct {
	Place, What, Reason, By, Line string
	Count                         int64
}

type refusal struct {
	Rule, Text, By string
	Count          int64
}

type phase struct {
	Name   string
	Status workorder.StepStatus
	Took   string
	Error  string
	// From and Share are of the whole run, in thousandths, for a chart.
	From, Share int
}

// build makes the page. It is for people; no program decides by it.
func build(d Data, b bounds) *page {
	r := cmp.Or(d.Result, &workorder.Result{})
	final, finalCut := block(r.Agent.Final, b.text)
	p := &page{
		Final: final, FinalCut: finalCut, Later: later(d.Later),
		Warnings: firsts(r.Warnings, b.items, func(s string) string { return line(s, b.line*2) }),
	}
	p.asked(d, b)
	p.flags(d, r, b)
	p.surface(d, r, b)
	p.feedback(d, r, b)
	p.proof(d, r, b)
	p.pictures(d, r, b)
	p.troubles(r, b)
	p.commits(d, r, b)
	if r.Rebased != nil {
		p.Rebased = showRebased(r.Rebased, b)
	}
	p.network(r, b)
	p.cost(r, b)
	p.about(d, r, b)
	p.outcome(r, b)
	for _, n := range d.Next[:min(len(d.Next), maxNext)] {
		p.Next = append(p.Next, NextStep{line(n.Purpose, 200), line(n.Command, 400)})
	}
	p.Title = headline(p.Task, r)
	p.Footer = "Written by sandbox-agent's runner, which the agent cannot reach. Names, commit messages and quoted text are the " +
		"agent's or the repository's."
	return p
}

// maxNext bounds the offered next steps.
const maxNext = 6

// headline returns the task's first line as a title.
func headline(task string, r *workorder.Result) string {
	first, _, _ := strings.Cut(task, "\n")
	if t := line(strings.TrimLeft(first, "#*-> "), 100); t != "" {
		return t
	}
	return line("Task "+r.TaskID, 100)
}

// fileURL returns a page of the forge, or "".
func fileURL(d Data, sha, path string, n int) string {
	if d.FileURL == nil || path == "" || sha == "" {
		return ""
	}
	return webAddress(d.FileURL(sha, path, max(n, 0)))
}

func place(path string, n, limit int) string {
	path = line(path, limit)
	if n > 0 && path != "" {
		return path + ":" + strconv.Itoa(n)
	}
	return path
}

// flagTitles are the flags, the worst first.
var flagTitles = []struct{ kind, title string }{
	{workorder.FindingTestEdited, "Test edited"},
	{workorder.FindingBaseTests, "Base's tests fail"},
	{workorder.FindingBrokenOnHead, "Passed before, fails now"},
	{workorder.FindingTestDeleted, "Test deleted"},
	{workorder.FindingTestSkipped, "Test skipped"},
	{workorder.FindingTestWeakened, "Test weakened"},
	{workorder.FindingReportMissing, "Test report missing"},
	{workorder.FindingCheckEdited, "Check itself edited"},
	{workorder.FindingHardCoded, "Expected value hard-coded"},
	{workorder.FindingNothingProven, "Nothing proven"},
}

// flagRank returns the position of a kind in flagTitles; unknown ones of a newer runner come first.
func flagRank(kind string) int {
	return slices.IndexFunc(flagTitles, func(t struct{ kind, title string }) bool { return t.kind == kind })
}

func (p *page) flags(d Data, r *workorder.Result, b bounds) {
	if r.Proof == nil {
		return
	}
	var edited, alarms, doubts []workorder.TestFinding
	for _, f := range r.Proof.TestFindings {
		switch f.Kind {
		case workorder.FindingTestEdited:
			edited = append(edited, f)
		case workorder.FindingNothingProven:
			doubts = append(doubts, f)
		default:
			alarms = append(alarms, f)
		}
	}
	slices.SortStableFunc(alarms, func(a, c workorder.TestFinding) int {
		return cmp.Or(cmp.Compare(flagRank(a.Kind), flagRank(c.Kind)), cmp.Compare(a.Path, c.Path), cmp.Compare(a.Line, c.Line))
	})
	show := func(f workorder.TestFinding) finding {
		title := line(f.Kind, 40)
		if i := flagRank(f.Kind); i >= 0 {
			title = flagTitles[i].title
		}
		at := r.Proof.Head
		if f.Kind == workorder.FindingTestDeleted {
			at = r.Proof.Base // at head there may be no such file
		}
		return finding{
			Kind: line(f.Kind, 40), Title: title, Place: place(f.Path, f.Line, b.line), Text: line(f.Text, b.line*2),
			URL: fileURL(d, at, f.Path, f.Line),
		}
	}
	p.Edited = firsts(edited, b.items, show)
	p.Alarms = firsts(alarms, b.items, show)
	p.Doubts = firsts(doubts, b.items, show)
}

func (p *page) surface(d Data, r *workorder.Result, b bounds) {
	var grave, mild []workorder.SurfaceFinding
	for _, f := range r.Surface {
		if f.Severe {
			grave = append(grave, f)
		} else {
			mild = append(mild, f)
		}
	}
	show := func(f workorder.SurfaceFinding) finding {
		kind := line(f.Kind, 40)
		return finding{
			Kind: kind, Title: strings.ReplaceAll(kind, "-", " "), Place: place(f.Path, f.Line, b.line),
			Text: line(f.Text, b.line*2), URL: fileURL(d, r.HeadSHA, f.Path, f.Line),
		}
	}
	p.Grave = firsts(grave, b.items, show)
	p.Mild = firsts(mild, b.items, show)
}

// other is what a task did in a repository other than the report's.
type other struct {
	Repo, Branch string
	Commits      int
	PR           int // 0 if there is none
	URL          string
}

func (p *page) commits(d Data, r *workorder.Result, b bounds) {
	p.Others = firsts(r.Repos, b.items, func(o workorder.RepoResult) other {
		out := other{Repo: line(o.Repo, b.line), Branch: line(o.Branch, b.line), Commits: len(o.Commits)}
		if o.PR != nil {
			out.PR, out.URL = o.PR.Number, webAddress(o.PR.URL)
		}
		return out
	})
	p.Commits = firsts(r.Commits, b.items, func(c workorder.Commit) commit {
		out := commit{
			SHA: line(c.SHA, 64), Short: line(c.SHA[:min(len(c.SHA), 7)], 7), Subject: line(c.Subject, b.line),
			Author: line(c.Author, b.line),
		}
		if d.CommitURL != nil {
			out.URL = webAddress(d.CommitURL(c.SHA))
		}
		for _, f := range r.Changes[c.SHA] {
			out.Added += max(f.Added, 0)
			out.Deleted += max(f.Deleted, 0)
		}
		out.Files = firsts(folded(r.Changes[c.SHA]), b.inner, func(f workorder.FileChange) workorder.FileChange {
			return workorder.FileChange{Path: line(f.Path, b.line), Added: max(f.Added, 0), Deleted: max(f.Deleted, 0), Binary: f.Binary}
		})
		return out
	})
}

func (p *page) network(r *workorder.Result, b bounds) {
	p.Guard = firsts(r.Refusals, b.items, func(f workorder.Refusal) refusal {
		return refusal{Rule: line(f.Rule, 60), Text: line(f.Text, b.line*2), By: line(f.By, b.line), Count: f.Count}
	})
	if r.Network == nil {
		return
	}
	p.Network = line(string(r.Network.Mode), 40)
	var refused, learned []workorder.NetworkHost
	for _, h := range r.Network.Hosts {
		switch h.Status {
		case workorder.NetworkRefused:
			refused = append(refused, h)
		case workorder.NetworkLearned:
			learned = append(learned, h)
		}
	}
	show := func(h workorder.NetworkHost) reach {
		at := line(h.Host, b.line)
		if h.Port > 0 {
			if strings.Contains(at, ":") {
				at = "[" + at + "]"
			}
			at += ":" + strconv.Itoa(int(h.Port))
		}
		by := line(strings.Join(h.By[:min(len(h.By), 3)], ", "), b.line)
		out := reach{Place: at, What: line(h.Protocol, 20), Reason: line(h.Reason, b.line), By: by, Count: h.Count}
		// A cut rule would be another rule.
		if rule := line(h.Rule, maxRule); rule == h.Rule {
			out.Line = rule
		}
		return out
	}
	p.Refused = firsts(refused, b.items, show)
	p.Learned = firsts(learned, b.items, show)
}

// maxRule bounds a line that allows a host: 253 characters of a name, with port and quotes.
const maxRule = 270
