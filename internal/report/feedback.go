package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// feedback is the outcome of one item of a review.
type feedback struct {
	Number              int
	Source, Place, URL  string
	Text                string // the beginning of what was asked
	Word                string // what became of it
	Tone                tone
	Commits             []commit
	Reason              string // the agent's words
	NotPosted, Resolved bool
}

var outcomes = map[string]struct {
	word string
	tone tone
}{
	workorder.AnswerCommit:   {"addressed", good},
	workorder.AnswerReason:   {"left as it is, with a reason", calm},
	workorder.AnswerNone:     {"not addressed", warn},
	workorder.AnswerQuoted:   {"only quoted: its author may not command", calm},
	workorder.AnswerDeferred: {"not given to the agent yet: there was no room for it", warn},
}

func (p *page) feedback(d Data, r *workorder.Result, b bounds) {
	p.Feedback = firsts(r.Review, b.items, func(a workorder.ReviewAnswer) feedback {
		f := feedback{
			Number: a.Number, Source: line(a.Source, 20), Place: place(a.Path, a.Line, b.line), URL: webAddress(a.URL),
			Text: line(a.Text, b.line), Word: line(a.Answer, 40), Tone: warn, Reason: line(a.Reason, b.line*2), Resolved: a.Resolved,
			NotPosted: Answerable(&a) && !a.Replied,
		}
		if o, ok := outcomes[a.Answer]; ok {
			f.Word, f.Tone = o.word, o.tone
		}
		for _, sha := range a.Commits[:min(len(a.Commits), b.inner)] {
			c := commit{SHA: line(sha, 64), Short: line(sha[:min(len(sha), 7)], 7)}
			if d.CommitURL != nil {
				c.URL = webAddress(d.CommitURL(sha))
			}
			f.Commits = append(f.Commits, c)
		}
		return f
	})
}

func (m *md) feedback(p *page) {
	if p.Feedback.Len() == 0 {
		return
	}
	m.heading("Feedback")
	m.f("| | asked | answer |\n| --- | --- | --- |\n")
	for _, f := range p.Feedback.Items {
		asked := esc(f.Text)
		if f.Place != "" {
			asked = link(code(f.Place), f.URL) + " " + asked
		} else if f.URL != "" {
			asked = link(esc(f.Source), f.URL) + " " + asked
		}
		answer := marks[f.Tone] + " " + esc(f.Word)
		var ids []string
		for _, c := range f.Commits {
			ids = append(ids, link("<code>"+escCode(c.Short)+"</code>", c.URL))
		}
		if len(ids) > 0 {
			answer += " in " + strings.Join(ids, ", ")
		}
		if f.Reason != "" {
			answer += ". The agent says: " + esc(f.Reason)
		}
		if f.Resolved {
			answer += " (resolved)"
		}
		if f.NotPosted {
			answer += " (not told there yet)"
		}
		m.f("| %d | %s | %s |\n", f.Number, asked, answer)
	}
	m.f("\n")
	if p.Feedback.More > 0 {
		m.more(p.Feedback.More)
		m.f("\n")
	}
}

// Answerable reports whether an item can have an answer on the forge.
func Answerable(a *workorder.ReviewAnswer) bool {
	return a.Answer != workorder.AnswerQuoted && a.Answer != workorder.AnswerDeferred && a.Source != workorder.ReviewFromFile
}

// against are the flags that make checks doubtful.
var against = []string{
	workorder.FindingBaseTests, workorder.FindingTestDeleted, workorder.FindingTestSkipped, workorder.FindingReportMissing,
	workorder.FindingCheckEdited,
	workorder.FindingBrokenOnHead, workorder.FindingTestWeakened, workorder.FindingHardCoded,
}

// Evidence formats the runner's findings as Markdown. green: every check passes on the branch's last commit in a clean
// checkout, and no flag contradicts it.
func Evidence(r *workorder.Result) (green bool, says string) {
	p := r.Proof
	switch {
	case p == nil && len(r.Validation) == 0, p != nil && len(p.Checks) == 0:
		return false, "The project has no checks, so that nothing is proven."
	case p == nil:
		return false, "The checks were not run in a clean checkout, so that nothing is proven."
	case p.Head != r.HeadSHA:
		return false, "The checks were run on another commit, so that nothing is proven."
	}
	var failed, flaky, names []string
	for _, c := range p.Checks {
		name := code(line(c.Name, 60))
		names = append(names, name)
		switch {
		case c.Head == nil || !c.Head.Passed:
			failed = append(failed, name)
		case c.Transition == workorder.TransitionFlaky || c.Counts[workorder.TransitionFlaky] > 0:
			flaky = append(flaky, name)
		}
	}
	var flags []string
	for _, f := range p.TestFindings {
		if i := flagRank(f.Kind); slices.Contains(against, f.Kind) && i >= 0 && !slices.Contains(flags, flagTitles[i].title) {
			flags = append(flags, flagTitles[i].title)
		}
	}
	switch {
	case len(failed) > 0:
		return false, "Checks that do not pass: " + some(failed) + "."
	case len(flaky) > 0:
		return false, "Checks that pass at one time and fail at another, at the same commit: " + some(flaky) + "."
	case len(flags) > 0:
		return false, "The checks pass, but there is something to look at before they are believed: " + strings.ToLower(some(flags)) + "."
	case len(p.Reasons) > 0:
		return false, "The checks pass, but not all of it could be looked at: " + esc(line(p.Reasons.String(), 300)) + "."
	case r.Status != workorder.StatusSuccess:
		return false, "The checks pass, but the run ended with the status " + code(line(string(r.Status), 40)) + "."
	}
	return true, "Checks that pass on the last commit: " + some(names) + "."
}

const maxNamed = 8

func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// maxReason bounds an agent's reason in a reply, in characters.
const maxReason = 1500

// Reply formats the answer to one item as Markdown. The agent's words are quoted without effect on the forge.
func Reply(a *workorder.ReviewAnswer, r *workorder.Result, commitURL func(sha string) string) string {
	var m md
	_, says := Evidence(r)
	switch {
	case len(a.Commits) > 0:
		m.f("Addressed in %s. %s\n", commits(a.Commits, commitURL), says)
	case a.Reason != "":
		m.f("Left as it is.\n")
	default:
		m.f("Not addressed: the agent neither named a commit for it nor gave a reason.\n")
	}
	if reason, _ := block(a.Reason, maxReason); reason != "" {
		m.f("\nThe agent's own words:\n\n%s", quote(reason))
	}
	return m.String()
}

// Replies formats the answer to all items without a thread.
func Replies(as []workorder.ReviewAnswer, r *workorder.Result, commitURL func(sha string) string) string {
	var m md
	_, says := Evidence(r)
	m.f("Answers to the feedback that is in no thread. %s\n", says)
	for i := range as {
		a := &as[i]
		m.f("\n**%d.** %s\n\n", a.Number, link(quoted(a), a.URL))
		switch {
		case len(a.Commits) > 0:
			m.f("Addressed in %s.\n", commits(a.Commits, commitURL))
		case a.Reason != "":
			m.f("Left as it is.\n")
		default:
			m.f("Not addressed: the agent neither named a commit for it nor gave a reason.\n")
		}
		if reason, _ := block(a.Reason, maxReason/3); reason != "" {
			m.f("\nThe agent's own words:\n\n%s", quote(reason))
		}
	}
	return m.String()
}

// quoted returns the beginning of the feedback.
func quoted(a *workorder.ReviewAnswer) string {
	if s := line(a.Text, 120); s != "" {
		return "“" + esc(s) + "”"
	}
	return esc(line(a.Source, 20))
}

// commits lists commits. The forge links whole ids by itself.
func commits(shas []string, url func(string) string) string {
	var out []string
	for _, sha := range shas {
		to := ""
		if url != nil {
			to = webAddress(url(sha))
		}
		switch {
		case strings.Trim(sha, "0123456789abcdef") != "":
			continue
		case to == "":
			out = append(out, sha)
		default:
			out = append(out, link("<code>"+escCode(sha[:min(len(sha), 7)])+"</code>", to))
		}
	}
	return some(out)
}
