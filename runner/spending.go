package runner

import (
	"sync"

	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// spending is the account of one attempt's agent, over all its processes: the gateway's meter decides where there is one,
// else the agent's own words and its transcript do. It reports the cost as events, and stops the agent at the budget. Its
// methods may be called concurrently; costs are in US dollars.
type spending struct {
	wire    *wire
	costs   *costs
	notices *notices
	budget  *float64 // nil means none
	emit    func(workorder.Event)
	over    func() // the budget is spent
	// before is what the processes before this one used; it changes between two processes only.
	before workorder.Usage

	mu    sync.Mutex
	spent float64         // guarded by mu
	told  workorder.Usage // guarded by mu; by the events
}

// reported keeps what the events say of the usage.
func (s *spending) reported(u workorder.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = u
}

// conclude has the events end with what the result says: calls may have ended, or broken off, behind the agent.
func (s *spending) conclude(u workorder.Usage) {
	s.mu.Lock()
	same := sameTokens(s.told, u) && s.told.ReservedUSD == u.ReservedUSD && s.told.Estimated == u.Estimated && sameCosts(s.told.CostUSD, u.CostUSD)
	s.mu.Unlock()
	if !same && s.wire.meter != nil {
		s.emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &u})
	}
}

func sameCosts(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }

// inAll adds what the processes before this one used.
func (s *spending) inAll(u workorder.Usage) workorder.Usage {
	all := harness.Add(s.before, u)
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
func (s *spending) account(usd float64) {
	s.watchBudget(s.note(usd))
}

// watchBudget is called with what all processes of the agent have spent.
func (s *spending) watchBudget(all float64) {
	s.notices.tellOfMoney(all)
	if b := s.budget; b != nil && all > *b {
		s.over()
	}
}

// note takes down what this process says it has spent and returns what all of them have: with those
// before it, and by the wire where that knows it.
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

// noteAll takes down what all processes of the agent have spent.
func (s *spending) noteAll(usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent = max(s.spent, usd)
}

// sofar is what the agent is known to have spent, in US dollars.
func (s *spending) sofar() float64 {
	if c := s.wire.cost(); c != nil {
		s.noteAll(*c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent
}

// look accounts for what was spent meanwhile, as the wire and the transcript tell, and
// reports it. told is the cost that was reported last.
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

// transcript is what the transcript says while there is a budget to watch.
func (s *spending) transcript() *float64 {
	if s.budget == nil {
		return nil
	}
	return s.costs.read()
}
