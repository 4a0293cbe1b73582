package runner

import (
	"math"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lastWord is how long an agent may go on when a call of it was refused because the budget is
	// spent: it may say so and end by itself. Claude Code does within six quick tries.
	lastWord = 10 * time.Second
	// sameCost is how far apart two sums of the same prices may lie, in US dollars.
	sameCost = 1e-6
)

// wire is what the meter sees of one agent. What others used before it is left out.
type wire struct {
	meter    Meter // nil: there is none
	before   workorder.Usage
	requests int64           // before
	over     <-chan struct{} // closed: the budget is spent
	told     workorder.Usage // of news; used by one goroutine
}

func newWire(m Meter, budget *float64) *wire {
	w := &wire{meter: m}
	if m != nil {
		m.SetBudget(budget)
		w.before, w.requests = m.Usage()
		w.over = m.OverBudget()
	}
	return w
}

// usage is what the agent used; ok is false as long as it asked no model.
func (w *wire) usage() (u workorder.Usage, ok bool) {
	if w.meter == nil {
		return u, false
	}
	u, n := w.meter.Usage()
	if n == w.requests {
		return workorder.Usage{}, false
	}
	u.InputTokens -= w.before.InputTokens
	u.OutputTokens -= w.before.OutputTokens
	u.CacheReadTokens -= w.before.CacheReadTokens
	u.CacheWriteTokens -= w.before.CacheWriteTokens
	if u.CostUSD != nil && w.before.CostUSD != nil {
		u.CostUSD = new(*u.CostUSD - *w.before.CostUSD)
	}
	return u, true
}

// moved changes when a request to a model began or was answered: a sign of life.
func (w *wire) moved() int64 {
	if w.meter == nil {
		return 0
	}
	u, n := w.meter.Usage()
	return n + u.InputTokens + u.OutputTokens
}

// cost is what the agent spent; nil: not known.
func (w *wire) cost() *float64 {
	u, _ := w.usage()
	return u.CostUSD
}

// settle is the usage to report, given the harness's own account. What was on the wire counts,
// and the harness's cost only where the wire's has no price. An account that the wire confirms in all
// its figures stays the harness's.
func (w *wire) settle(own workorder.Usage) workorder.Usage {
	u, ok := w.usage()
	switch {
	case !ok || sameUsage(u, own):
		return own
	case u.CostUSD == nil && own.CostUSD != nil:
		u.CostUSD, u.CostSource = own.CostUSD, workorder.CostByHarness
	}
	return u
}

func sameUsage(a, b workorder.Usage) bool {
	return a.CostUSD != nil && b.CostUSD != nil && math.Abs(*a.CostUSD-*b.CostUSD) < sameCost && sameTokens(a, b)
}

func sameTokens(a, b workorder.Usage) bool {
	return a.InputTokens == b.InputTokens && a.OutputTokens == b.OutputTokens &&
		a.CacheReadTokens == b.CacheReadTokens && a.CacheWriteTokens == b.CacheWriteTokens
}

// news is the usage if it is another one than last time.
func (w *wire) news() (u workorder.Usage, news bool) {
	u, ok := w.usage()
	if !ok || sameTokens(u, w.told) {
		return u, false
	}
	w.told = u
	return u, true
}

// spent reports whether a call was refused because the budget is spent.
func (w *wire) spent() bool {
	select {
	case <-w.over: // without a meter it is nil, and never closed
		return true
	default:
		return false
	}
}
