package runner

import (
	"context"
	"math"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lastWord is how long an agent may go on when a call of it was refused because the budget is
	// spent: it may say so and end by itself. Claude Code does within six quick tries.
	lastWord = 10 * time.Second
	// settleTime is how long a run waits for the end of calls that its agent gave up: models
	// seldom take longer, and of what is open then the most that it can cost is reserved.
	settleTime = 30 * time.Second
	// rideOut is how long a limit may last that is left to the agent: the SDKs of both providers obey a Retry-After of up to
	// a minute, and try a longer one by their own clock until they give up, or wait for it without a word.
	rideOut = time.Minute
	// limitWord is how long an agent may go on when its calls are refused for longer than that: it may have another model to
	// ask, or say itself what it ends at.
	limitWord = 15 * time.Second
	// sameCost is how far apart two sums of the same prices may lie, in US dollars.
	sameCost = 1e-6
)

// wire is what the meter sees of one agent. Use by others before it is left out.
type wire struct {
	meter    Meter // nil means there is none
	before   workorder.Usage
	requests int64           // before
	over     <-chan struct{} // closed: the budget is spent
	told     workorder.Usage // of news; used by one goroutine
	failures int             // to reach a server, before: of setup, not of the agent
}

func newWire(m Meter, budget *float64) *wire {
	w := &wire{meter: m}
	if m != nil {
		m.SetBudget(budget)
		w.before, w.requests = m.Usage()
		_, w.failures = m.Unreachable()
		w.over = m.OverBudget()
	}
	return w
}

// usage is what the agent used; ok is false as long as it asked no model.
func (w *wire) usage() (u workorder.Usage, ok bool) {
	if w.meter == nil {
		return u, false
	}
	return w.own(w.meter.Usage())
}

// own is what of all usage is the agent's.
func (w *wire) own(u workorder.Usage, requests int64) (_ workorder.Usage, ok bool) {
	if requests == w.requests {
		return workorder.Usage{}, false
	}
	u.InputTokens -= w.before.InputTokens
	u.OutputTokens -= w.before.OutputTokens
	u.CacheReadTokens -= w.before.CacheReadTokens
	u.CacheWriteTokens -= w.before.CacheWriteTokens
	u.ReservedUSD = max(u.ReservedUSD-w.before.ReservedUSD, 0) // some of it may have become cost
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
	u, _ = w.own(u, n) // what setup asked is not the agent's word
	return n - w.requests + u.InputTokens + u.OutputTokens
}

// cost is what the agent spent; nil means not known.
func (w *wire) cost() *float64 {
	u, _ := w.usage()
	return u.CostUSD
}

// final is the usage of an agent that has ended, given its own account.
func (w *wire) final(ctx context.Context, own workorder.Usage) workorder.Usage {
	if w.meter == nil {
		return own
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	u, ok := w.own(w.meter.Settle(ctx))
	return reported(u, ok, own)
}

// sofar is the usage to report while the agent works, given its own account.
func (w *wire) sofar(own workorder.Usage) workorder.Usage {
	u, ok := w.usage()
	return reported(u, ok, own)
}

// reported: what was on the wire counts, and the harness's cost only where the wire's has no price.
// An account that the wire confirms in all its figures stays the harness's, and so does a cost above what the wire could only count in part.
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

// news is the usage if it is another one than last time.
func (w *wire) news() (u workorder.Usage, news bool) {
	u, ok := w.usage()
	if !ok || sameTokens(u, w.told) && u.ReservedUSD == w.told.ReservedUSD {
		return u, false
	}
	w.told = u
	return u, true
}

// limit is a limit of the provider's that stands still; nil means there is none.
func (w *wire) limit(now time.Time) *workorder.ModelLimit {
	if w.meter == nil {
		return nil
	}
	l := w.meter.Limit()
	if l == nil || !l.Until.After(now) || l.Until.Sub(now) > workorder.MaxPark {
		return nil
	}
	return l
}

// long is a limit that stands still and is not left to the agent; nil means there is none.
func (w *wire) long(now time.Time) *workorder.ModelLimit {
	if l := w.limit(now); l != nil && l.Until.Sub(l.At) > rideOut {
		return l
	}
	return nil
}

// stranded reports whether an agent has been at a limit that it does not ride out for so long. One at which only side calls are
// refused is none: the agent may live.
func (w *wire) stranded(now time.Time, patience time.Duration) bool {
	l := w.long(now)
	return l != nil && !l.Side && now.Sub(l.Since) >= patience
}

// unreachable is why the agent cannot ask any model at all; "" when it can, or did not try yet.
func (w *wire) unreachable() string {
	if w.meter == nil {
		return ""
	}
	why, failures := w.meter.Unreachable()
	if failures == w.failures {
		return ""
	}
	return why
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
