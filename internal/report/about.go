package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// outcome describes the ending in one line. A flag takes precedence over a green check.
func (p *page) outcome(r *workorder.Result, b bounds) {
	o := &p.Outcome
	o.Reason = line(r.Reasons.String(), b.line*3)
	switch r.Status {
	case workorder.StatusSuccess:
		p.succeeded(r)
		p.unaddressed(r)
	case workorder.StatusNoChanges:
		*o = outcome{calm, "Nothing changed", unchanged(r), o.Reason}
		p.unaddressed(r)
	case workorder.StatusPlanned:
		*o = outcome{good, "Plan made", "A plan was asked for and made. No code was changed.", o.Reason}
	case workorder.StatusUnproven:
		*o = outcome{
			warn, "Unproven",
			"Checks fail as they did before the task, and no check or test that failed passes now: nothing shows what it changed.", o.Reason,
		}
		p.unaddressed(r)
	case workorder.StatusFailed:
		*o = outcome{bad, "Failed", failedBy(r), o.Reason}
	case workorder.StatusParked:
		o.Tone, o.Word, o.Line = wait, "Parked", "Waits for a limit of the model's provider."
		if r.ResumeAt != nil {
			o.Line = "Waits for a limit of the model's provider, until " + clock(*r.ResumeAt) + "."
		}
	case workorder.StatusInterrupted:
		*o = outcome{wait, "Interrupted", "Stopped from outside. The work so far is saved.", o.Reason}
	case workorder.StatusTimeout:
		*o = outcome{wait, "Out of time", "The time limit was reached. The work so far is saved.", o.Reason}
	case workorder.StatusBudgetExceeded:
		*o = outcome{wait, "Out of budget", "The budget was reached. The work so far is saved.", o.Reason}
	case workorder.StatusError:
		*o = outcome{bad, "Error", "Not the task failed, but what carries it: " + cmp.Or(line(string(r.EndedBy), 20), "unknown") + ".", o.Reason}
	case workorder.StatusLost:
		*o = outcome{bad, "Lost", "The sandbox vanished without a result.", o.Reason}
	default:
		*o = outcome{calm, cmp.Or(line(string(r.Status), 30), "Unknown"), "This report does not know how that ends.", o.Reason}
	}
}

// unaddressed mentions unaddressed items of a review before any success.
func (p *page) unaddressed(r *workorder.Result) {
	open, of := r.Unaddressed()
	if open == 0 {
		return
	}
	o := &p.Outcome
	if o.Tone = warn; o.Word == "Done" {
		o.Word = "Done in part"
	}
	o.Line = fmt.Sprintf("%s of %s not addressed. %s", number(int64(open)), plural(of, "item", "items"), o.Line)
}

func unchanged(r *workorder.Result) string {
	switch {
	case noAgent(r) && len(r.Commits) > 0:
		return "No agent ran. The branch is as it was."
	case noAgent(r):
		return "No agent ran."
	case len(r.Commits) > 0:
		return "The branch is as it was."
	}
	return "The agent ended without an error and left nothing to commit."
}

func (p *page) succeeded(r *workorder.Result) {
	o := &p.Outcome
	passed, all, tests := tally(r)
	say := "No check is configured: nothing was proven."
	switch {
	case all > 0 && passed == all:
		say = plural(all, "check passes", "checks pass")
	case all > 0:
		say = fmt.Sprintf("%d of %s", passed, plural(all, "check passes", "checks pass"))
	}
	before := r.Reasons.Has(workorder.ReasonAsBefore)
	if before {
		say += ", the rest fails as before the task"
	}
	var more []string
	for _, t := range []struct {
		is   workorder.Transition
		word string
	}{{workorder.TransitionFixed, "fixed"}, {workorder.TransitionNewPasses, "new"}, {workorder.TransitionBroken, "broken"}} {
		if n := tests[t.is]; n > 0 {
			more = append(more, plural(n, "test "+t.word, "tests "+t.word))
		}
	}
	if all > 0 {
		say = strings.Join(append([]string{say}, more...), ", ") + "."
	}
	look := p.Alarms.Len() + p.Grave.Len()
	switch {
	case look > 0:
		o.Tone, o.Word = warn, "Look closely"
		o.Line = plural(look, "finding needs", "findings need") + " your eyes before this is believed. " + say
	case all == 0 || passed < all && !before || p.Doubts.Len() > 0:
		o.Tone, o.Word, o.Line = warn, "Done, not proven", say
		if p.Doubts.Len() > 0 {
			o.Line = say + " No check tells base and head apart."
		}
	default:
		o.Tone, o.Word, o.Line = good, "Done", say
	}
}

func failedBy(r *workorder.Result) string {
	switch r.EndedBy {
	case workorder.EndedByValidation:
		passed, all, _ := tally(r)
		return number(int64(all-passed)) + " of " + plural(all, "check", "checks") + " failed."
	case workorder.EndedByAgent:
		return "The agent gave up or ended with an error."
	case workorder.EndedBySetup:
		return "The project's setup failed before the agent could work."
	case workorder.EndedByServices:
		return "A service did not become ready."
	case workorder.EndedByHang:
		return "The agent showed no sign of life any more."
	}
	return "The task failed (" + cmp.Or(line(string(r.EndedBy), 20), "reason unknown") + ")."
}

func (p *page) cost(r *workorder.Result, b bounds) {
	parts := []string{took(r.DurationMS)}
	switch c := r.Usage.CostUSD; {
	case c != nil:
		who := map[string]string{workorder.CostByGateway: " computed by the gateway", workorder.CostByHarness: " by the agent's own account"}
		parts = append(parts, usd(*c)+who[r.Usage.CostSource])
	case noAgent(r):
		parts = append(parts, "no agent ran")
	default:
		parts = append(parts, "cost not known")
	}
	if r.Usage.Estimated || r.Usage.ReservedUSD > 0 {
		text := "partly estimated"
		if r.Usage.ReservedUSD > 0 {
			text += ", up to " + usd(r.Usage.ReservedUSD) + " more for answers that broke off"
		}
		parts = append(parts, text)
	}
	if r.Agent.Turns > 0 {
		parts = append(parts, plural(r.Agent.Turns, "turn", "turns"))
	}
	if all := spent(r); all != "" {
		parts = append(parts, "the whole task "+all)
	}
	p.Cost = strings.Join(parts, " · ")
	u := r.Usage
	if u.InputTokens+u.OutputTokens+u.CacheReadTokens+u.CacheWriteTokens > 0 {
		p.Tokens = fmt.Sprintf("%s tokens in, %s out, %s read from the cache, %s written to it",
			number(u.InputTokens), number(u.OutputTokens), number(u.CacheReadTokens), number(u.CacheWriteTokens))
	}
	steps := slices.DeleteFunc(slices.Clone(r.Steps), func(s workorder.Step) bool { return s.Status == workorder.StepSkipped })
	p.Phases = firsts(steps, b.items, func(s workorder.Step) phase {
		out := phase{
			Name: line(string(s.Name), 40), Status: workorder.StepStatus(line(string(s.Status), 20)), Took: took(s.DurationMS),
			Error: line(s.Error, b.line),
		}
		if r.DurationMS > 0 && !s.StartedAt.IsZero() {
			from := min(max(s.StartedAt.Sub(r.StartedAt).Milliseconds(), 0), r.DurationMS)
			out.From = int(float64(from) / float64(r.DurationMS) * 1000)
			out.Share = max(int(float64(min(max(s.DurationMS, 0), r.DurationMS-from))/float64(r.DurationMS)*1000), minBar)
			out.From = min(out.From, 1000-out.Share)
		}
		return out
	})
}

// spent returns the cost of the task with earlier attempts; empty if there are none or their cost is unknown.
func spent(r *workorder.Result) string {
	sum, told, silent := 0.0, 0, 0
	add := func(c *float64, free bool) {
		switch {
		case c != nil:
			sum, told = sum+*c, told+1
		case !free:
			silent++
		}
	}
	add(r.Usage.CostUSD, noAgent(r))
	for _, a := range r.PastAttempts {
		add(a.CostUSD, false)
	}
	switch {
	case len(r.PastAttempts) == 0 || told == 0:
		return ""
	case silent > 0:
		return "at least " + usd(sum)
	}
	return usd(sum)
}

// minBar is the shortest visible bar of a chart, in thousandths.
const minBar = 6

// about collects the order, the earlier attempts and the versions.
func (p *page) about(d Data, r *workorder.Result, b bounds) {
	add := func(to *[]fact, name, value string) {
		if value = line(value, b.line); value != "" {
			*to = append(*to, fact{Name: line(name, 40), Value: value})
		}
	}
	o := d.Order
	add(&p.Facts, "Task", r.TaskID)
	add(&p.Facts, "Project", cmp.Or(o.Project, r.Project))
	add(&p.Facts, "Agent", strings.TrimSpace(cmp.Or(r.Agent.Harness, o.Harness)+" "+line(cmp.Or(r.Agent.Model, o.Model), 60)))
	network := string(o.Network)
	if network == "" && r.Network != nil {
		network = string(r.Network.Mode)
	}
	if len(o.Allow) > 0 {
		network += ", allows " + strings.Join(o.Allow[:min(len(o.Allow), b.inner)], ", ")
		if n := len(o.Allow) - b.inner; n > 0 {
			network += fmt.Sprintf(" and %d more", n)
		}
	}
	add(&p.Facts, "Network", network)
	if o.BudgetUSD > 0 {
		add(&p.Facts, "Budget", usd(o.BudgetUSD))
	}
	if o.TimeoutMinutes > 0 {
		add(&p.Facts, "Time limit", strconv.FormatFloat(o.TimeoutMinutes, 'f', -1, 64)+" min")
	}
	add(&p.Facts, "Branch", r.Branch)
	if r.Attempt > 1 {
		add(&p.Facts, "Attempt", strconv.Itoa(r.Attempt))
	}
	if !r.StartedAt.IsZero() {
		add(&p.Facts, "Started", clock(r.StartedAt))
	}
	for _, a := range r.PastAttempts[max(len(r.PastAttempts)-b.inner, 0):] {
		text := string(a.Status)
		if a.CostUSD != nil {
			text += ", " + usd(*a.CostUSD)
		}
		if reason := a.Reasons.String(); reason != "" {
			text += ": " + reason
		}
		add(&p.Earlier, fmt.Sprintf("Attempt %d", a.Number), text)
	}
	for _, v := range d.Versions[:min(len(d.Versions), b.items)] {
		add(&p.Versions, v.Name, v.Version)
	}
	add(&p.Versions, cmp.Or(r.Agent.Harness, "harness"), r.Agent.Version)
	add(&p.Versions, "image", r.Image.Name)
	add(&p.Versions, "image id", cmp.Or(r.Image.Digest, r.Image.ID))
	add(&p.Versions, "engine", r.Platform.EngineVersion)
	add(&p.Versions, "inner engine", r.Platform.InnerVersion)
	add(&p.Versions, "isolation", r.Platform.Isolation)
	add(&p.Versions, "kernel", r.Platform.Kernel)
}

func took(ms int64) string {
	switch d := time.Duration(min(max(ms, 0), maxMS)) * time.Millisecond; {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

// maxMS is the longest shown duration: a thousand days.
const maxMS = int64(1000 * 24 * time.Hour / time.Millisecond)

// clock formats a time in UTC: reader and box may be in different zones.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func usd(f float64) string {
	if f > 0 && f < 0.01 {
		return "$" + strconv.FormatFloat(f, 'f', 4, 64)
	}
	return "$" + strconv.FormatFloat(f, 'f', 2, 64)
}

func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(int64(n)) + " " + many
}
