package runner

import (
	"cmp"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// spending tracks the cost of one attempt's agent over all its processes, by the gateway's meter if there is one,
// otherwise by the agent's reports and transcript. It stops the agent at the budget. It is safe for concurrent use.
type spending struct {
	wire    *agentUsage
	costs   *costs
	notices *notices
	budget  *float64 // nil if none
	emit    func(workorder.Event)
	over    func() // called when the budget is spent
	// before is the use of earlier processes; it changes only between two processes.
	before workorder.Usage

	mu    sync.Mutex
	spent float64         // guarded by mu
	told  workorder.Usage // guarded by mu; last usage reported as an event
}

func (s *spending) reported(u workorder.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = u
}

// conclude makes the last event agree with the result: calls may have ended after the agent did.
func (s *spending) conclude(u workorder.Usage) {
	s.mu.Lock()
	same := sameTokens(s.told, u) && s.told.ReservedUSD == u.ReservedUSD && s.told.Estimated == u.Estimated &&
		sameCosts(s.told.CostUSD, u.CostUSD)
	s.mu.Unlock()
	if !same && s.wire.meter != nil {
		s.emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &u})
	}
}

func sameCosts(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }

func (s *spending) inAll(u workorder.Usage) workorder.Usage {
	all := harness.Add(s.before, u)
	all.CostSource = cmp.Or(all.CostSource, u.CostSource)
	return all
}

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

// account enforces the budget while the agent works; usd is the spending of this process.
func (s *spending) account(usd float64) { s.watchBudget(s.note(usd)) }

func (s *spending) watchBudget(all float64) {
	s.notices.tellOfMoney(all)
	if b := s.budget; b != nil && all > *b {
		s.over()
	}
}

// note records the spending that this process reports and returns the total of all processes.
func (s *spending) note(usd float64) float64 {
	if c := s.before.CostUSD; c != nil {
		usd += *c
	}
	if c := s.wire.cost(); c != nil {
		usd = *c
	}
	s.noteAll(usd)
	return usd
}

func (s *spending) noteAll(usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent = max(s.spent, usd)
}

// sofar returns the known spending of the agent, in US dollars.
func (s *spending) sofar() float64 {
	if c := s.wire.cost(); c != nil {
		s.noteAll(*c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent
}

// look accounts for spending since the last call and reports it. told is the last reported cost.
func (s *spending) look(told float64) float64 {
	if u, news := s.wire.news(); news {
		if u.CostUSD != nil {
			s.noteAll(*u.CostUSD)
			s.watchBudget(*u.CostUSD)
			told = max(told, *u.CostUSD)
		}
		s.emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &u})
		s.reported(u)
	}
	usd := s.transcript()
	if usd == nil {
		return told
	}
	s.account(*usd)
	if *usd > told {
		told = *usd
		u := workorder.Usage{CostUSD: usd, CostSource: workorder.CostByHarness}
		s.emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &u})
		s.reported(u)
	}
	return told
}

// transcript returns the cost in the transcript while there is a budget to enforce.
func (s *spending) transcript() *float64 {
	if s.budget == nil {
		return nil
	}
	return s.costs.read()
}
