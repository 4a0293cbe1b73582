package render

import (
	"fmt"
	"strconv"
	"strings"

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

// repairs counts how often failed validation went back to the agent.
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
		s.row(label(i, "repair"), fmt.Sprintf("%d  %s went back to the agent, %s  %s", round.Number, strings.Join(names, ", "), end, took(millis(round.DurationMS))))
	}
}

func anyFailed(checks []workorder.Validation) bool {
	for _, c := range checks {
		if !c.Passed {
			return true
		}
	}
	return false
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
		case workorder.Broken, workorder.NewFails, workorder.Gone:
			color = red
		case workorder.StillFails, workorder.Flaky, workorder.NowSkipped, workorder.NotCompared:
			color = yellow
		}
		text := words(oneLine(c.Name), s.p.as(color, strings.TrimSpace(string(c.Transition))))
		if c.Transition == workorder.NotCompared {
			text = words(oneLine(c.Name), s.p.as(color, "not compared"))
		}
		var tests []string
		for _, t := range []workorder.Transition{workorder.Broken, workorder.NewFails, workorder.Gone, workorder.NowSkipped, workorder.Flaky, workorder.Fixed, workorder.NewPasses} {
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
	for i, f := range p.Flags {
		if i == s.most() {
			s.row("", fmt.Sprintf("%d more in .proof.flags of the result", len(p.Flags)-i))
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
