package runner

import (
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (a *agentRun) stdoutLine(line []byte, lost int64) {
	a.heard.Add(1)
	if lost > 0 {
		a.longest = max(a.longest, int64(len(line))+lost)
	}
	events, understood := a.parser.Line(line)
	if !understood {
		a.plainLine("stdout", line, lost)
		return
	}
	for _, e := range events {
		if e.Usage != nil {
			if e.Usage.CostUSD != nil {
				a.account(*e.Usage.CostUSD)
			}
			all := a.wire.sofar(a.inAll(*e.Usage))
			e.Usage = &all
			a.usageTold(all)
		}
		if a.events.allow(len(e.Text)) {
			a.emit(e)
		}
	}
	if a.parser.Halt() != "" {
		a.stop(errHalt)
	}
}

func (a *agentRun) stderrLine(line []byte, lost int64) {
	a.heard.Add(1)
	a.plainLine("stderr", line, lost)
}

// plainLine is the way of a flood: nothing is allocated for a line that is dropped.
func (a *agentRun) plainLine(stream string, line []byte, lost int64) {
	if len(line) == 0 || !a.output.allow(len(line)) {
		return
	}
	text := string(line[:min(len(line), redactWindow)])
	if lost > 0 {
		text = fmt.Sprintf("[line of %d bytes] %s", int64(len(line))+lost, text)
	}
	a.emit(workorder.Event{Type: workorder.EventAgentOutput, Name: stream, Text: text})
}

// usageTold keeps what the events say of the usage.
func (a *agentRun) usageTold(u workorder.Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = u
}

// tellUsage has the events end with what the result says: calls may have ended, or broken off, behind the agent.
func (a *agentRun) tellUsage(u workorder.Usage) {
	a.mu.Lock()
	same := sameTokens(a.told, u) && a.told.ReservedUSD == u.ReservedUSD && a.told.Estimated == u.Estimated && sameCosts(a.told.CostUSD, u.CostUSD)
	a.mu.Unlock()
	if !same && a.wire.meter != nil {
		a.emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &u})
	}
}

func sameCosts(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }

// inAll adds what the processes before this one used.
func (a *agentRun) inAll(u workorder.Usage) workorder.Usage {
	all := harness.Add(a.before.Usage, u)
	if all.CostSource == "" {
		all.CostSource = u.CostSource
	}
	return all
}

// larger takes the larger of each number.
func larger(a, b workorder.Usage) workorder.Usage {
	a.InputTokens = max(a.InputTokens, b.InputTokens)
	a.OutputTokens = max(a.OutputTokens, b.OutputTokens)
	a.CacheReadTokens = max(a.CacheReadTokens, b.CacheReadTokens)
	a.CacheWriteTokens = max(a.CacheWriteTokens, b.CacheWriteTokens)
	if b.CostUSD != nil && (a.CostUSD == nil || *a.CostUSD < *b.CostUSD) {
		a.CostUSD = b.CostUSD
	}
	return a
}

// account watches the budget while the agent works; usd is what this process has spent.
func (a *agentRun) account(usd float64) {
	a.watchBudget(a.note(usd))
}

// watchBudget is called with what all processes of the agent have spent.
func (a *agentRun) watchBudget(all float64) {
	a.tellOfMoney(all)
	if b := a.Order.MaxBudgetUSD; b != nil && all > *b {
		a.stop(errBudget)
	}
}

// note takes down what this process says it has spent and returns what all of them have: with those
// before it, and by the wire where that knows it.
func (a *agentRun) note(usd float64) float64 {
	if c := a.before.Usage.CostUSD; c != nil {
		usd += *c
	}
	if c := a.wire.cost(); c != nil {
		usd = *c
	}
	a.noteAll(usd)
	return usd
}

// noteAll takes down what all processes of the agent have spent.
func (a *agentRun) noteAll(usd float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent = max(a.spent, usd)
}

// spentSoFar is what the agent is known to have spent, in US dollars.
func (a *agentRun) spentSoFar() float64 {
	if c := a.wire.cost(); c != nil {
		a.noteAll(*c)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent
}
