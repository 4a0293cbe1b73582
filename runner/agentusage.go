package runner

import (
	"context"
	"math"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lastWord is how long an agent may continue after a refusal for the budget: it may report that and end by itself.
	lastWord = 10 * time.Second
	// settleTime bounds the wait for calls that the agent abandoned; then their maximum cost is reserved.
	settleTime = 30 * time.Second
	// rideOut is how long a provider limit may last to be left to the agent: the SDKs obey a Retry-After of up to a minute.
	rideOut = time.Minute
	// limitWord is how long an agent may continue at a longer limit: it may use another model, or report the cause itself.
	limitWord = 15 * time.Second
	// sameCost is how far two sums of the same prices may differ, in US dollars.
	sameCost = 1e-6
)

// agentUsage is the meter's view of one agent. Use from before the agent is excluded.
type agentUsage struct {
	meter    Meter // nil if there is none
	before   workorder.Usage
	requests int64           // requests before this agent
	over     <-chan struct{} // closed: the budget is spent
	reported workorder.Usage // last usage returned by news; used by one goroutine
	failures int             // failed connections before this agent: of setup, not of the agent
}

func newAgentUsage(m Meter, budget *float64) *agentUsage {
	w := &agentUsage{meter: m}
	if m != nil {
		m.SetBudget(budget)
		w.before, w.requests = m.Usage()
		_, w.failures = m.Unreachable()
		w.over = m.OverBudget()
	}
	return w
}

// usage returns the agent's use; ok is false while it has sent no request.
func (w *agentUsage) usage() (u workorder.Usage, ok bool) {
	if w.meter == nil {
		return u, false
	}
	return w.own(w.meter.Usage())
}

func (w *agentUsage) own(u workorder.Usage, requests int64) (_ workorder.Usage, ok bool) {
	if requests == w.requests {
		return workorder.Usage{}, false
	}
	u.InputTokens -= w.before.InputTokens
	u.OutputTokens -= w.before.OutputTokens
	u.CacheReadTokens -= w.before.CacheReadTokens
	u.CacheWriteTokens -= w.before.CacheWriteTokens
	u.ReservedUSD = max(u.ReservedUSD-w.before.ReservedUSD, 0) // some of the reserve may have become cost
	if u.CostUSD != nil && w.before.CostUSD != nil {
		u.CostUSD = new(*u.CostUSD - *w.before.CostUSD)
	}
	return u, true
}

// moved changes whenever a request to a model begins or is answered, which is a sign of life.
func (w *agentUsage) moved() int64 {
	if w.meter == nil {
		return 0
	}
	u, n := w.meter.Usage()
	u, _ = w.own(u, n) // requests of setup are not signs of the agent
	return n - w.requests + u.InputTokens + u.OutputTokens
}

// cost returns the agent's spending; nil if unknown.
func (w *agentUsage) cost() *float64 {
	u, _ := w.usage()
	return u.CostUSD
}

// final returns the usage of an agent that has ended, given its own report.
func (w *agentUsage) final(ctx context.Context, own workorder.Usage) workorder.Usage {
	if w.meter == nil {
		return own
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	u, ok := w.own(w.meter.Settle(ctx))
	return reported(u, ok, own)
}

// sofar returns the usage to report while the agent works, given its own report.
func (w *agentUsage) sofar(own workorder.Usage) workorder.Usage {
	u, ok := w.usage()
	return reported(u, ok, own)
}

// reported combines both sources: the measured usage counts, and the harness's cost only where the measured one has no
// price, where both agree in all figures, or where it is higher and the measurement was incomplete.
func reported(u workorder.Usage, ok bool, own workorder.Usage) workorder.Usage {
	switch {
	case !ok || sameUsage(u, own) && u.ReservedUSD == 0 && !u.Estimated:
		return own
	case own.CostUSD != nil && (u.CostUSD == nil || u.Estimated && *u.CostUSD < *own.CostUSD):
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

func (w *agentUsage) news() (u workorder.Usage, news bool) {
	u, ok := w.usage()
	if !ok || sameTokens(u, w.reported) && u.ReservedUSD == w.reported.ReservedUSD {
		return u, false
	}
	w.reported = u
	return u, true
}

// limit returns a provider limit in force; nil if there is none.
func (w *agentUsage) limit(now time.Time) *workorder.ModelLimit {
	if w.meter == nil {
		return nil
	}
	l := w.meter.Limit()
	if l == nil || !l.Until.After(now) || l.Until.Sub(now) > workorder.MaxPark {
		return nil
	}
	return l
}

// long returns a provider limit in force that is not left to the agent; nil if there is none.
func (w *agentUsage) long(now time.Time) *workorder.ModelLimit {
	if l := w.limit(now); l != nil && l.Until.Sub(l.At) > rideOut {
		return l
	}
	return nil
}

// stranded reports whether an agent has been at such a limit for too long. A limit of side calls only does not count.
func (w *agentUsage) stranded(now time.Time, patience time.Duration) bool {
	l := w.long(now)
	return l != nil && !l.Side && now.Sub(l.Since) >= patience
}

// unreachable explains why the agent cannot reach any model; "" if it can, or has not tried yet.
func (w *agentUsage) unreachable() string {
	if w.meter == nil {
		return ""
	}
	why, failures := w.meter.Unreachable()
	if failures == w.failures {
		return ""
	}
	return why
}

func (w *agentUsage) spent() bool {
	select {
	case <-w.over: // without a meter it is nil, and never closed
		return true
	default:
		return false
	}
}
