package render

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SummaryOptions are the facts beside the result that a summary shows.
type SummaryOptions struct {
	Color bool
	// All shows everything that a summary can have. Without it lists are short, and what only a look back needs is left out: times of
	// steps, logs of checks that passed, the evidence file by file.
	All   bool
	Width int // 80 if 0
	// Dir is the directory of the result; not shown if empty.
	Dir string
	// Kept is the stopped container that was kept for inspection; empty if there is none.
	Kept string
	// Former are the attempts before this one, oldest first. Number is this one's number
	// among them: the result's own number does not count tries that never had a box.
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

// maxShown and maxBrief bound lists; the result has all entries.
const (
	maxShown = 20
	maxBrief = 5
)

func (s *summary) most() int {
	if s.o.All {
		return maxShown
	}
	return maxBrief
}

// Summary prints the result of a run.
func Summary(w io.Writer, r *workorder.Result, o SummaryOptions) {
	if r == nil {
		return
	}
	s := &summary{o: o, p: paint(o.Color), room: o.Width - labelWidth - 3}
	if o.Width <= 0 {
		s.o.Width, s.room = defaultWidth, math.MaxInt // outside of a terminal, lines may have any length
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
	s.evidence(further(r.Evidence))
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
	_, _ = io.WriteString(w, s.b.String()) // a reader that has gone away is not an error
}

// evidence names the files; several in the directory of evidence are a number where not all is asked for.
func (s *summary) evidence(all []workorder.Evidence) {
	within := func(e workorder.Evidence) bool { return strings.HasPrefix(e.Path, workorder.EvidenceDir+"/") }
	beside := slices.DeleteFunc(slices.Clone(all), within)
	n := len(all) - len(beside)
	if s.o.All || n < 2 {
		beside, n = all, 0
	}
	for i, e := range beside[:min(len(beside), s.most())] {
		s.row(label(i, "evidence"), words(oneLine(e.Name), s.path(e.Path)))
	}
	if n > 0 {
		s.row(label(len(beside), "evidence"), fmt.Sprintf("%d files in %s", n, s.path(workorder.EvidenceDir)))
	}
}

func (s *summary) warnings(r *workorder.Result) {
	for i, t := range r.Warnings {
		if i == s.most() {
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
	// room is the number of columns of a row beside its label.
	room int
}

const labelWidth = 11

// row is a label with its value. It is never cut, since paths and commands are copied; on
// a narrow terminal it wraps at a word.
func (s *summary) row(name, text string) {
	if text == "" {
		return
	}
	for i, l := range atWords(text, s.room) {
		fmt.Fprintf(&s.b, "  %s%s\n", s.p.as(dim, fmt.Sprintf("%-*s", labelWidth, label(i, name))), strings.TrimRight(l, " "))
	}
}

// atWords breaks a line only at spaces; colours have no width.
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

func (s *summary) path(p string) string {
	if p == "" || s.o.Dir == "" || filepath.IsAbs(p) {
		return oneLine(p)
	}
	return oneLine(filepath.Join(s.o.Dir, p))
}

func (s *summary) text(name, prose, color string) {
	for i, l := range wrap(text.Clean(prose), s.o.Width-labelWidth-3, maxTextLines) {
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
	case workorder.StatusUnproven, workorder.StatusInterrupted, workorder.StatusParked, workorder.StatusTimeout,
		workorder.StatusBudgetExceeded:
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
	if r.Status == workorder.StatusUnproven {
		s.text("unproven", "no check or test that failed before the task passes now, so nothing shows what it changed. A suite that is known "+
			"to fail: strict: false in the project file", yellow)
	}
}

// attempts lists the former attempts, and what this one continues.
func (s *summary) attempts(r *workorder.Result) {
	if t := r.ResumeAt; t != nil {
		s.row("resumes", "at "+text.Clock(*t, s.o.now())+", when the provider's limit resets")
	}
	var parts []string
	for _, a := range s.o.Former[max(0, len(s.o.Former)-s.most()):] {
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
		s.row("checkpoint", words(short(c.SHA), "of", text.Clock(c.At, s.o.now()), "has uncommitted work"))
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
	s.commits("commits", r.Commits)
	s.rebased(r.Rebased)
	s.pullRequest(r)
	for _, o := range r.Repos {
		at := oneLine(o.Branch)
		switch {
		case len(o.Commits) == 0:
			at = "no commits"
		case !o.Pushed:
			at = s.p.as(yellow, "not pushed")
		}
		if o.PR != nil {
			at += ", pull request " + oneLine(o.PR.URL)
		}
		s.row(oneLine(o.Name), words(at, s.p.as(dim, oneLine(o.Repo))))
		s.commits("", o.Commits)
	}
}

func (s *summary) commits(of string, all []workorder.Commit) {
	for i, c := range all {
		if i == s.most() {
			s.row("", fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		s.row(label(i, of), short(c.SHA)+" "+cut(oneLine(c.Subject), s.o.Width-labelWidth-14))
	}
}

// pullRequest prints the branch's pull request, or why there is none: no other row has the reason.
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
	if len(r.Validation) == 0 && r.Status == workorder.StatusSuccess && len(r.Commits) > 0 {
		s.row("validation", s.p.as(yellow, "none: the project has no checks, and nothing judged the work"))
	}
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
		log := ""
		if !v.Passed || s.o.All {
			log = s.p.as(dim, s.path(v.Log))
		}
		s.row(label(i, "validation"), fmt.Sprintf("%s %s  exit %-3d  %7s  %s", mark, name, v.ExitCode, took(millis(v.DurationMS)), log))
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

// tail shows the end of a log. It cuts no line: the cause is often at the end of a long one.
func (s *summary) tail(t string) {
	const lines = 8
	all := strings.Split(strings.TrimRight(text.Clean(t), "\n"), "\n")
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

// time lists the time of each step that took any.
func (s *summary) time(r *workorder.Result) {
	if !s.o.All {
		return
	}
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

// feedback counts the results of a review's items, and lists those that were not addressed.
func (s *summary) feedback(r *workorder.Result) {
	if len(r.Review) == 0 {
		return
	}
	kinds := []struct{ answer, word string }{
		{workorder.AnswerCommit, "addressed"},
		{workorder.AnswerReason, "left with a reason"},
		{workorder.AnswerNone, "not addressed"},
		{workorder.AnswerQuoted, "only quoted"},
	}
	count, resolved := map[string]int{}, 0
	for _, a := range r.Review {
		count[a.Answer]++
		if a.Resolved {
			resolved++
		}
	}
	var parts []string
	for _, k := range kinds {
		if n := count[k.answer]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.word))
		}
	}
	if resolved > 0 {
		parts = append(parts, fmt.Sprintf("%d resolved", resolved))
	}
	s.row("feedback", strings.Join(parts, ", "))
}

// pagePictures is the directory of the runner's pictures, relative to the result's directory. A summary counts them by page and does
// not list them.
const pagePictures = workorder.EvidenceDir + "/pages"

func (s *summary) pages(r *workorder.Result) {
	if r.Proof == nil {
		return
	}
	var paths []string
	at := map[string][]string{}
	for _, p := range r.Proof.Pages {
		if !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
		at[p.Path] = append(at[p.Path], fmt.Sprintf("%s at %d px", changed(p)+refused(p.Head), p.Width))
	}
	for i, p := range paths {
		if i == s.most() {
			s.row("", fmt.Sprintf("and %d more pages", len(paths)-i))
			break
		}
		s.row(label(i, "pages"), words(oneLine(p), strings.Join(at[p][:min(len(at[p]), s.most())], ", ")))
	}
	if len(paths) > 0 {
		s.row("", s.path(pagePictures))
	}
}

func changed(p workorder.PageProof) string {
	switch {
	case p.Head == nil || p.Head.Error != "":
		return "not seen"
	case p.Differs == nil:
		return "not compared"
	case *p.Differs <= 0:
		return "same"
	case *p.Differs < 0.001:
		return "differs by less than 0.1 %"
	}
	return fmt.Sprintf("differs by %.1f %%", min(*p.Differs, 1)*100)
}

// refused describes the last commit's answer for a page, if it is not a success.
func refused(v *workorder.PageView) string {
	if v == nil || v.Error != "" || v.Status <= 0 || v.Status >= 200 && v.Status < 300 {
		return ""
	}
	return fmt.Sprintf(" (HTTP %d)", v.Status)
}

// further is the evidence beside the pages' pictures.
func further(all []workorder.Evidence) []workorder.Evidence {
	return slices.DeleteFunc(slices.Clone(all), func(e workorder.Evidence) bool { return strings.HasPrefix(e.Path, pagePictures+"/") })
}
