package render

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxPlanLines bounds the printed plan; the file has all of it.
const maxPlanLines = 200

func (s *summary) plan(r *workorder.Result) {
	if r.Plan == "" {
		return
	}
	lines := strings.Split(strings.TrimSpace(text.Clean(r.Plan)), "\n")
	s.b.WriteString("\n")
	for _, l := range lines[:min(len(lines), maxPlanLines)] {
		s.b.WriteString(strings.TrimRight("  "+l, " ") + "\n")
	}
	if n := len(lines) - maxPlanLines; n > 0 {
		fmt.Fprintf(&s.b, "  … %d more lines\n", n)
	}
	s.b.WriteString("\n")
}

func (s *summary) repairs(r *workorder.Result) {
	for i, round := range r.Repairs {
		names := make([]string, len(round.Failed))
		for k, n := range round.Failed {
			names[k] = oneLine(n)
		}
		end := "passes"
		switch {
		case round.Status != workorder.StatusSuccess:
			end = words("the agent ended:", oneLine(string(round.Status)))
		case anyFailed(round.Validation):
			end = "still fails"
		}
		s.row(label(i, "repair"), fmt.Sprintf("%d  %s went back to the agent, %s  %s", round.Number, strings.Join(names, ", "), end,
			took(millis(round.DurationMS))))
	}
}

func anyFailed(checks []workorder.Validation) bool {
	return slices.ContainsFunc(checks, func(c workorder.Validation) bool { return !c.Passed })
}

// proof prints the results of clean checkouts of base and head, and what to check before trusting them.
func (s *summary) proof(r *workorder.Result) {
	p := r.Proof
	if p == nil {
		return
	}
	for i, c := range p.Checks {
		color := green
		switch c.Transition {
		case workorder.TransitionBroken, workorder.TransitionNewFails, workorder.TransitionDeleted:
			color = red
		case workorder.TransitionStillFails, workorder.TransitionFlaky, workorder.TransitionSkipped, workorder.TransitionNotCompared:
			color = yellow
		}
		text := words(oneLine(c.Name), s.p.as(color, strings.TrimSpace(string(c.Transition))))
		if c.Transition == workorder.TransitionNotCompared {
			text = words(oneLine(c.Name), s.p.as(color, "not compared"))
		}
		var tests []string
		for _, t := range []workorder.Transition{
			workorder.TransitionBroken, workorder.TransitionNewFails, workorder.TransitionDeleted, workorder.TransitionSkipped,
			workorder.TransitionFlaky,
			workorder.TransitionFixed, workorder.TransitionNewPasses,
		} {
			if n := c.Counts[t]; n > 0 {
				tests = append(tests, strconv.Itoa(n)+" "+string(t))
			}
		}
		if len(tests) > 0 {
			text += "  tests: " + strings.Join(tests, ", ")
		}
		if b := c.BaseTests; b != nil {
			end := s.p.as(green, "pass")
			if !b.Passed {
				end = s.p.as(red, fmt.Sprintf("fail (exit %d)", b.ExitCode))
			}
			if n := len(c.BaseTestsFailed); n > 0 {
				end = s.p.as(red, fmt.Sprintf("%d fail", n))
			}
			text += "  base's tests on head's code: " + end
		}
		s.row(label(i, "proof"), text)
	}
	for i, f := range p.TestFindings {
		if i == s.most() {
			s.row("", fmt.Sprintf("%d more in .proof.flags of the result", len(p.TestFindings)-i))
			break
		}
		place := oneLine(f.Path)
		if f.Line > 0 {
			place += ":" + strconv.Itoa(f.Line)
		}
		s.row(label(i, "flagged"), words(s.p.as(yellow, oneLine(f.Kind)), place, oneLine(f.Text)))
	}
	if why := p.Reasons.String(); why != "" {
		s.text("proof", why, dim)
	}
}

// maxRefused bounds the summary's lists of hosts and of Docker requests; the result has all of them.
const maxRefused = 5

// networkText describes an attempt to reach a host and its result, and the line in the
// project file that would allow it.
func networkText(e workorder.Event) string {
	said := words("network:", oneLine(e.Status), oneLine(e.Name))
	if by := oneLine(e.By); by != "" {
		said += " for " + by
	}
	fix, reason := oneLine(e.Fix), oneLine(e.Text)
	switch {
	case strings.HasPrefix(fix, "gateway:"): // a feature that would run at the model's provider
		return said + `: allow it with "` + fix + `" in the project file`
	case fix != "" && e.Status == string(workorder.NetworkRefused):
		return said + `: allow it with "` + netrules.Line(fix) + `" under network.allow`
	case fix != "" && e.Status == string(workorder.NetworkLearned):
		return said + `: it needs "` + netrules.Line(fix) + `" under network.allow`
	case reason != "":
		return said + ": " + reason
	}
	return said
}

func guardText(e workorder.Event) string {
	said := words("docker: refused", ruleOf(oneLine(e.Name)))
	if by := oneLine(e.By); by != "" {
		said += " for " + by
	}
	if text := strings.TrimPrefix(oneLine(e.Text), "rule "+oneLine(e.Name)+": "); text != "" {
		said += ": " + text
	}
	return said
}

func ruleOf(name string) string {
	if name == "" {
		return ""
	}
	return "(rule " + name + ")"
}

func restoredText(e workorder.Event) string {
	said := words("settings of agents:", oneLine(e.Path), "is that of the base branch")
	if text := oneLine(e.Text); text != "" {
		said += ": " + text
	}
	return said
}

// HostPort is a host with its port; without one if it is 0.
func HostPort(h workorder.NetworkHost) string {
	host := oneLine(h.Host)
	if h.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(h.Port)))
	}
	switch p := oneLine(h.Protocol); p {
	case "", "tcp":
		return host
	default:
		return host + "/" + p
	}
}

// network lists the refused places outside, and docker the requests that the guard refused.
func (s *summary) network(r *workorder.Result) {
	if r.Network == nil {
		return
	}
	var refused []workorder.NetworkHost
	learned := map[string]bool{} // a connection looks the name up first: both are one place
	for _, h := range r.Network.Hosts {
		switch h.Status {
		case workorder.NetworkRefused:
			refused = append(refused, h)
		case workorder.NetworkLearned:
			learned[h.Host] = true
		}
	}
	var lines []string
	for i, h := range refused {
		if i == maxRefused {
			lines = append(lines, fmt.Sprintf("and %d more", len(refused)-i))
			break
		}
		line := words(s.p.as(yellow, "refused"), HostPort(h)+times(h.Count), first(h.By))
		if rule := oneLine(h.Rule); rule != "" {
			line += s.p.as(dim, "   "+netrules.Line(rule))
		} else if reason := oneLine(h.Reason); reason != "" {
			line += ": " + reason
		}
		lines = append(lines, line)
	}
	if len(learned) > 0 {
		lines = append(lines, fmt.Sprintf("%d more would have been refused without learn", len(learned)))
	}
	if len(lines) == 0 {
		return
	}
	lines = append(lines, s.p.as(dim, "sandbox-agent network suggest "+oneLine(r.TaskID)+" proposes rules"))
	for i, l := range lines {
		s.row(label(i, "network"), l)
	}
}

func (s *summary) docker(r *workorder.Result) {
	for i, f := range r.Refusals {
		if i == maxRefused {
			s.row("", fmt.Sprintf("and %d more", len(r.Refusals)-i))
			break
		}
		s.row(label(i, "docker"), words(s.p.as(yellow, "refused"), ruleOf(oneLine(f.Rule))+times(f.Count), "for", oneLine(f.By)+":",
			cut(oneLine(f.Text), maxReason)))
	}
}

// maxReason bounds the reason of a refused request, in columns.
const maxReason = 200

func times(n int64) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" ×%d", n)
}

func first(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return "for " + oneLine(by[0])
}

// surface lists what to check before the branch is checked out or merged: the severe findings,
// and the number of the others.
func (s *summary) surface(r *workorder.Result) {
	shown, others := 0, 0
	for _, f := range r.Surface {
		if !f.Severe || shown == s.most() {
			others++
			continue
		}
		place := oneLine(f.Path)
		if f.Line > 0 {
			place += ":" + strconv.Itoa(f.Line)
		}
		s.row(label(shown, "look at"), words(s.p.as(yellow, oneLine(f.Kind)), place, oneLine(f.Text)))
		shown++
	}
	if others > 0 {
		s.row(label(shown, "look at"), fmt.Sprintf("%d more in .surface of the result", others))
	}
}

func (s *summary) rebased(r *workorder.Rebased) {
	if r == nil {
		return
	}
	count := map[string]int{}
	for _, m := range r.Moved {
		count[m.How]++
	}
	var moved []string
	for _, how := range []string{workorder.RangeSame, workorder.RangeChanged, workorder.RangeDropped, workorder.RangeAdded} {
		if count[how] > 0 {
			moved = append(moved, fmt.Sprintf("%d %s", count[how], how))
		}
	}
	text := words("onto", oneLine(r.Onto), short(r.NewBase))
	if !r.Pushed {
		text = s.p.as(yellow, "not ") + text
	}
	s.row("rebased", join(" · ", text, strings.Join(moved, ", ")))
	shown := 0
	for _, m := range r.Moved {
		if m.How != workorder.RangeSame && shown < s.most() {
			shown++
			s.text("", words(oneLine(m.How), short(m.Old), oneLine(m.Subject)+":", oneLine(m.Reason)), "")
		}
	}
	if r.Pushed {
		s.row("", "the head before is kept as "+oneLine(r.Backup))
	} else if r.Kept != "" {
		s.row("", "the new commits are kept as "+oneLine(r.Kept))
	}
}
