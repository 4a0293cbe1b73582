package render

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SummaryOptions say what the summary can show.
type SummaryOptions struct {
	Color bool
	Width int // 0 means 80
	// Dir is where the result lies; empty means not said.
	Dir string
	// Kept is the stopped container that was left for a look inside; empty means none.
	Kept string
	// Former are the attempts before this one, oldest first, and Number is its own
	// among them: that of the result leaves out tries that never had a box.
	Former []Attempt
	Number int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (o SummaryOptions) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// Attempt is one line of a task's history.
type Attempt struct {
	Number  int
	Status  workorder.Status
	EndedBy workorder.EndedBy
}

// maxShown bounds lists; the result has all of it.
const maxShown = 20

// Summary prints what came of a run.
func Summary(w io.Writer, r *workorder.Result, o SummaryOptions) {
	if r == nil {
		return
	}
	s := &summary{o: o, p: paint(o.Color), room: o.Width - labelWidth - 3}
	if o.Width <= 0 {
		s.o.Width, s.room = defaultWidth, math.MaxInt // what is no terminal has lines of any length
	}
	s.title(r)
	s.plan(r)
	s.attempts(r)
	s.repository(r)
	s.checks(r)
	s.repairs(r)
	s.proof(r)
	s.pages(r)
	s.agent(r)
	s.time(r)
	s.services(r)
	s.network(r)
	s.docker(r)
	s.feedback(r)
	s.surface(r)
	s.warnings(r)
	for i, e := range further(r.Evidence) {
		if i == maxShown {
			break
		}
		s.row(label(i, "evidence"), words(oneLine(e.Name), s.path(e.Path)))
	}
	if o.Kept != "" {
		kept := oneLine(o.Kept)
		s.row("kept", "the stopped container "+kept)
		s.row("", "look inside: docker cp "+kept+":"+workorder.Workspace+" .")
		s.row("", "remove it:   sandbox-agent rm "+oneLine(r.TaskID))
	}
	if o.Dir != "" {
		s.row("result", oneLine(o.Dir))
		if r.Pushed {
			s.row("report", s.path(workorder.ReportHTML))
		}
	}
	if r.NextCommand != "" {
		s.row("next", s.p.as(bold, oneLine(r.NextCommand)))
	}
	_, _ = io.WriteString(w, s.b.String()) // a reader that has gone away is no error
}

func (s *summary) warnings(r *workorder.Result) {
	for i, t := range r.Warnings {
		if i == maxShown {
			s.row("", fmt.Sprintf("and %d more warnings", len(r.Warnings)-i))
			break
		}
		s.text("warning", t, yellow)
	}
}

type summary struct {
	b strings.Builder
	o SummaryOptions
	p paint
	// room is the columns that a row has beside its label.
	room int
}

const labelWidth = 11

// row is a label and what belongs to it. It is never cut, as paths and commands
// are there to be copied; on a narrow terminal it continues below at a word.
func (s *summary) row(name, text string) {
	if text == "" {
		return
	}
	for i, l := range atWords(text, s.room) {
		fmt.Fprintf(&s.b, "  %s%s\n", s.p.as(dim, fmt.Sprintf("%-*s", labelWidth, label(i, name))), strings.TrimRight(l, " "))
	}
}

// atWords breaks a line at spaces only, colours counting for nothing.
func atWords(text string, room int) []string {
	lines, used := []string{}, 0
	for i, word := range strings.Split(text, " ") {
		w := columns(stripColor(word))
		if i == 0 || used+1+w > room {
			lines, used = append(lines, word), w
			continue
		}
		lines[len(lines)-1] += " " + word
		used += 1 + w
	}
	return lines
}

// path is where a file of the output lies, as it can be opened from anywhere.
func (s *summary) path(p string) string {
	if p == "" || s.o.Dir == "" || filepath.IsAbs(p) {
		return oneLine(p)
	}
	return oneLine(filepath.Join(s.o.Dir, p))
}

// text is a row of prose, wrapped.
func (s *summary) text(name, text, color string) {
	for i, l := range wrap(Clean(text), s.o.Width-labelWidth-3, maxTextLines) {
		if color != "" {
			l = s.p.as(color, l)
		}
		s.row(label(i, name), l)
	}
}

func label(i int, name string) string {
	if i == 0 {
		return name
	}
	return ""
}

func (s *summary) title(r *workorder.Result) {
	mark, color := "✗", red
	switch r.Status {
	case workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusPlanned:
		mark, color = "✓", green
	case workorder.StatusInterrupted, workorder.StatusParked, workorder.StatusTimeout, workorder.StatusBudgetExceeded:
		mark, color = "!", yellow
	}
	status := oneLine(string(r.Status))
	if open, of := r.Unaddressed(); open > 0 {
		if status += fmt.Sprintf(", %d of %d items not addressed", open, of); color == green {
			mark, color = "!", yellow
		}
	}
	fmt.Fprintf(&s.b, "\n%s\n", words(s.p.as(color, mark+" "+status), s.p.as(bold, oneLine(r.TaskID)),
		oneLine(r.Project), "in "+took(millis(r.DurationMS))))
	reason := r.Reasons.String()
	if reason == "" && r.Status == workorder.StatusFailed {
		reason = "ended by " + string(r.EndedBy)
	}
	if reason != "" {
		s.text("reason", reason, "")
	}
}

// attempts is what came before, and what this one goes on from.
func (s *summary) attempts(r *workorder.Result) {
	if t := r.ResumeAt; t != nil {
		s.row("resumes", "at "+Clock(*t, s.o.now())+", when the provider's limit resets")
	}
	var parts []string
	for _, a := range s.o.Former[max(0, len(s.o.Former)-maxShown):] {
		parts = append(parts, words(fmt.Sprint(a.Number), oneLine(string(a.Status)), "("+oneLine(string(a.EndedBy))+")"))
	}
	if len(parts) > 0 {
		s.text("attempts", strings.Join(append(parts, fmt.Sprintf("%d this one", s.o.Number)), " · "), "")
	}
	if v := r.Restored; v != nil {
		text := words("branch at", short(v.Head))
		if v.Checkpoint != "" {
			text = words(text, "with checkpoint", short(v.Checkpoint))
		}
		if !v.Verified {
			text += s.p.as(yellow, " (not verified)")
		}
		s.row("restored", text)
		if v.Kept != "" {
			s.row("", "a checkpoint that does not fit the branch is kept as "+oneLine(v.Kept))
		}
	}
	if c := r.Checkpoint; c != nil {
		s.row("checkpoint", words(short(c.SHA), "of", Clock(c.At, s.o.now()), "has uncommitted work"))
	}
}

func (s *summary) repository(r *workorder.Result) {
	if r.Repo == "" && r.Branch == "" {
		return
	}
	branch := oneLine(r.Branch)
	switch {
	case branch == "":
		branch = "none"
	case !r.Pushed:
		branch += s.p.as(yellow, " (not pushed)")
	}
	if r.BaseBranch != "" {
		branch += s.p.as(dim, " from "+words(oneLine(r.BaseBranch), short(r.BaseSHA)))
	}
	s.row("branch", branch)
	for i, c := range r.Commits {
		if i == maxShown {
			s.row("", fmt.Sprintf("and %d more", len(r.Commits)-i))
			break
		}
		s.row(label(i, "commits"), short(c.SHA)+" "+cut(oneLine(c.Subject), s.o.Width-labelWidth-14))
	}
	s.rebased(r.Rebased)
	s.pullRequest(r)
}

// pullRequest is the one of the branch, or why there is none: nothing else of the result says that.
func (s *summary) pullRequest(r *workorder.Result) {
	if r.PR != nil {
		s.row("pull req.", words(fmt.Sprintf("#%d", r.PR.Number), oneLine(r.PR.State), oneLine(r.PR.URL)))
		return
	}
	for _, st := range r.Steps {
		if st.Name == workorder.StepPR && st.Status != workorder.StepDone && st.Error != "" {
			s.text("pull req.", "none: "+oneLine(st.Error), yellow)
		}
	}
}

func (s *summary) checks(r *workorder.Result) {
	wide := 0
	for _, v := range r.Validation {
		wide = min(max(wide, columns(oneLine(v.Name))), 24)
	}
	for i, v := range r.Validation {
		mark := s.p.as(green, "✓")
		if !v.Passed {
			mark = s.p.as(red, "✗")
		}
		name := cut(oneLine(v.Name), 24)
		name += strings.Repeat(" ", max(0, wide-columns(name)))
		s.row(label(i, "validation"), fmt.Sprintf("%s %s  exit %-3d  %7s  %s", mark, name, v.ExitCode,
			took(millis(v.DurationMS)), s.p.as(dim, s.path(v.Log))))
		if !v.Passed {
			s.tail(v.Tail)
		}
	}
}

func (s *summary) services(r *workorder.Result) {
	for _, v := range r.Services {
		if v.State == "ready" {
			continue
		}
		s.row("service", s.p.as(red, words(oneLine(v.Name), oneLine(v.State)))+" "+s.path(v.Log))
		s.tail(v.Tail)
	}
}

// tail shows the end of a log. No line is cut: the cause often stands at the end of a long one.
func (s *summary) tail(t string) {
	const lines = 8
	all := strings.Split(strings.TrimRight(Clean(t), "\n"), "\n")
	for _, l := range all[max(0, len(all)-lines):] {
		if strings.TrimSpace(l) == "" {
			continue
		}
		for _, part := range wrap(l, s.o.Width-labelWidth-5, maxTextLines) {
			s.row("", s.p.as(dim, "| "+part))
		}
	}
}

func (s *summary) agent(r *workorder.Result) {
	if r.Agent.Harness == "" {
		return
	}
	turns := ""
	if r.Agent.Turns > 0 {
		turns = fmt.Sprintf("%d turns", r.Agent.Turns)
	}
	code := ""
	if r.Agent.ExitCode != nil && *r.Agent.ExitCode != 0 {
		code = fmt.Sprintf("exit %d", *r.Agent.ExitCode)
	}
	s.row("agent", join(" · ", words(oneLine(r.Agent.Harness), oneLine(r.Agent.Version)), oneLine(r.Agent.Model), turns, code))
	s.row("cost", usage(r.Usage))
}

// time is the time of each step that took any.
func (s *summary) time(r *workorder.Result) {
	const notable = 10 * time.Millisecond
	var parts []string
	for _, st := range r.Steps {
		if d := millis(st.DurationMS); st.Status != workorder.StepSkipped && d >= notable {
			parts = append(parts, oneLine(string(st.Name))+" "+took(d))
		}
	}
	s.text("time", strings.Join(parts, " · "), "")
}

func join(by string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, by)
}
