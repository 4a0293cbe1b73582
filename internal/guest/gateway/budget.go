package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// turnTime bounds a request's wait for others that may use up the budget:
	// longer than models take for an answer. Then the client may try again.
	turnTime = 10 * time.Minute
	// bytesPerToken converts sizes into tokens where there is no count: English text has
	// four bytes a token, code and other languages about three.
	bytesPerToken = 3
	// usualOutput is the assumed output of a call, in tokens, when the server did not answer at all.
	usualOutput = 4096
	// fastest exceeds the speed of every model in prices.json, in tokens a second, thoughts and faster services included.
	fastest = 500
	// inFlight is the output, in tokens, that a server may write before it notices that its reader has gone: two seconds at
	// the fastest.
	inFlight = 2 * fastest
	// maxCut bounds the broken-off answers that are kept for a later report.
	maxCut = 1000
)

// ledger counts the usage and enforces the budget.
//
// A request may begin while the spent sum is below the budget. Its cost is known only at its end, so one request at a
// time may exceed the budget. Concurrent requests reserve their highest cost, by prompt and allowed answer, or the cost
// of the dearest request so far if that is more. A request that does not fit next to the running ones waits for them.
// Before any cost is known, all wait for the first, unless its client has given it up. So the budget is exceeded by at
// most one request that runs alone, or by the amount by which the running ones together cost more than they reserved: a
// server can do work that the request does not show.
//
// The received part of a broken-off answer is cost. The server may bill more: that is a reserve, which is
// shown apart until the provider reports the usage. The reserve counts for the budget if the client gave the
// call up, or requested so much at a time that it was not read: otherwise an agent could get around the
// budget that way. It does not count if the server broke off, because nothing in the box caused that.
type ledger struct {
	mu     sync.Mutex
	budget *float64
	over   chan struct{} // closed when a request was refused because the budget is spent
	shut   bool          // over is closed

	requests int64
	sum      workorder.Usage // CostUSD is not used
	usd      float64
	reserved float64           // by answers that broke off
	held     float64           // the part of reserved that counts for the budget
	cut      map[string]*entry // the broken-off answers, by the provider's answer id
	// estimated means that part of sum and usd is not reported by the provider.
	estimated bool
	// unknown is the reason why the cost is not known, from the first such request on.
	unknown string
	dearest float64
	known   bool // a request has reported its cost
	running map[*entry]bool
	changed chan struct{} // closed and replaced when a request ends or the budget changes
}

func newLedger() *ledger {
	return &ledger{over: make(chan struct{}), changed: make(chan struct{}), running: map[*entry]bool{}, cut: map[string]*entry{}}
}

type entry struct {
	l       *ledger
	reserve float64 // the most that it can cost, by its content
	used    tokens
	usd     float64
	left    bool    // its client has gone
	beyond  float64 // possible cost beyond usd, if its answer broke off
	holds   bool    // beyond counts for the budget
	model   string  // the requested model, if its answer broke off
}

// most is the highest total cost of the request. l.mu is held.
func (e *entry) most() float64 { return max(e.reserve, e.l.dearest) }

func (l *ledger) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) setBudget(usd *float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget = nil
	if usd != nil {
		l.budget = new(*usd)
	}
	if l.shut && (l.budget == nil || l.spent() < *l.budget) {
		l.over, l.shut = make(chan struct{}), false
	}
	l.notify()
}

func (l *ledger) overBudget() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// enter admits a request that can cost this much; priced is false if its price is not known.
func (l *ledger) enter(ctx context.Context, model string, most float64, priced bool) (*entry, *refusal) {
	deadline := time.NewTimer(turnTime)
	defer deadline.Stop()
	for {
		e, no, wait := l.tryEnter(model, most, priced)
		if wait == nil {
			return e, no
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, &refusal{status: http.StatusTooManyRequests, kind: "aborted", text: "the client went away", after: 1}
		case <-deadline.C:
			return nil, &refusal{
				status: http.StatusTooManyRequests, kind: "budget_busy", after: 5,
				text: "pending requests may use up the budget, and this one waited too long for them",
			}
		}
	}
}

// tryEnter returns a channel to wait for if the decision depends on other requests.
func (l *ledger) tryEnter(model string, most float64, priced bool) (*entry, *refusal, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry{l: l, reserve: most}
	if l.budget != nil {
		if no := l.refuse(model, priced); no != nil {
			return nil, no, nil
		}
		if len(l.running) > 0 && (!l.known && l.attended() || l.spent()+l.open()+e.most() > *l.budget) {
			return nil, nil, l.changed
		}
	}
	l.running[e] = true
	l.requests++
	return e, nil, nil
}

// refuse returns why no request may pass at all. l.mu is held and there is a budget.
func (l *ledger) refuse(model string, priced bool) *refusal {
	const what = "; add its price to gateway.prices of the project, or drop max_budget_usd"
	switch {
	case l.spent() >= *l.budget:
		if !l.shut {
			close(l.over)
			l.shut = true
		}
		return &refusal{
			status: http.StatusBadRequest, kind: "budget_exceeded",
			text: fmt.Sprintf(
				"the budget of this task (max_budget_usd) is spent: $%.4g of $%.4g; no more model calls are possible, end your work now", l.spent(),
				*l.budget,
			),
		}
	case l.unknown != "":
		return &refusal{status: http.StatusBadRequest, kind: "cost_unknown", text: "the budget cannot be enforced: " + l.unknown + what}
	case !priced:
		return &refusal{
			status: http.StatusBadRequest, kind: "price_unknown",
			text: fmt.Sprintf("the budget cannot be enforced with the model %q, whose price is unknown", clean(model)) + what,
		}
	}
	return nil
}

// spent is the sum that counts for the budget. l.mu is held.
func (l *ledger) spent() float64 { return l.usd + l.held }

// attended reports whether a client waits for a running request. Requests without a client do not count: they may take long, and
// their highest cost is known. l.mu is held.
func (l *ledger) attended() bool {
	for e := range l.running {
		if !e.left {
			return true
		}
	}
	return false
}

// open is the possible further cost of the running requests. l.mu is held.
func (l *ledger) open() (usd float64) {
	for e := range l.running {
		usd += max(e.most()-e.usd, 0)
	}
	return usd
}

// update replaces the request's usage so far. cost is nil if it is not known, for the reason why.
func (e *entry) update(t tokens, cost *float64, why string) {
	l := e.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.InputTokens += t.input - e.used.input
	l.sum.OutputTokens += t.output - e.used.output
	l.sum.CacheReadTokens += t.cacheRead - e.used.cacheRead
	l.sum.CacheWriteTokens += t.cacheWrite - e.used.cacheWrite
	e.used = t
	if cost == nil {
		if l.unknown == "" {
			l.unknown = why
		}
		return
	}
	l.usd += *cost - e.usd
	e.usd = *cost
}

// final marks the request's cost as complete and not estimated.
func (e *entry) final() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.dearest = max(e.l.dearest, e.usd)
	e.l.known = true
}

// breakOff records the request's possible cost beyond the known one. holds means that it counts for the budget. id is
// the provider's answer id, if there is one; model is the requested one.
func (e *entry) breakOff(beyond float64, holds bool, id, model string) {
	l := e.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.estimated = true
	e.beyond, e.holds, e.model = beyond, holds, model
	l.reserved += beyond
	if holds {
		l.held += beyond
	}
	if id != "" && len(l.cut) < maxCut {
		l.cut[id] = e
	}
}

// cutOf returns the requested model of the broken-off answer with that id; ok is false if there is none or its usage was reported already.
func (l *ledger) cutOf(id string) (model string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.cut[id]; e != nil {
		return e.model, true
	}
	return "", false
}

// evidence records the whole usage and cost of a broken-off answer, and frees its reserve.
func (l *ledger) evidence(id string, t tokens, usd float64) {
	l.mu.Lock()
	e := l.cut[id]
	if e == nil {
		l.mu.Unlock()
		return
	}
	delete(l.cut, id)
	l.reserved -= e.beyond
	if e.holds {
		l.held -= e.beyond
	}
	e.beyond = 0
	l.notify()
	l.mu.Unlock()
	e.update(t, &usd, "")
}

// abandon marks that the client has gone and only the gateway waits for the end of the request.
func (e *entry) abandon() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.left = true
	e.l.notify()
}

func (e *entry) leave() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	delete(e.l.running, e)
	e.l.notify()
}

func (l *ledger) usage() (workorder.Usage, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(), l.requests
}

// account returns the usage so far. l.mu is held.
func (l *ledger) account() workorder.Usage {
	u := l.sum
	u.ReservedUSD, u.Estimated = l.reserved, l.estimated
	if l.unknown == "" || l.usd > 0 {
		// If the cost of a call is unknown, the rest is a lower bound, which later attempts of the task must count.
		u.CostUSD, u.CostSource = new(l.usd), workorder.CostByGateway
		u.Estimated = u.Estimated || l.unknown != ""
	}
	return u
}

// settle returns the usage once only the gateway waits for requests. If ctx ends
// first, the possible cost of the running ones is reserved.
func (l *ledger) settle(ctx context.Context) (workorder.Usage, int64) {
	for {
		l.mu.Lock()
		var open float64
		waits := false
		for e := range l.running {
			if e.left {
				waits = true
				open += max(e.reserve-e.usd, 0)
			}
		}
		changed := l.changed
		over := ctx.Err() != nil
		u, n := l.account(), l.requests
		u.ReservedUSD += open
		l.mu.Unlock()
		if !waits || over {
			return u, n
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// bucket limits requests per minute: a burst of n, and n more in every minute.
type bucket struct {
	mu    sync.Mutex
	size  float64
	level float64
	at    time.Time
}

func newBucket(perMinute int) *bucket {
	return &bucket{size: float64(perMinute), level: float64(perMinute)}
}

// take takes one token, or returns the time until there is one.
func (b *bucket) take(now time.Time) (wait time.Duration) {
	if b.size == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.level = min(b.size, b.level+now.Sub(b.at).Minutes()*b.size)
	}
	b.at = now
	if b.level >= 1 {
		b.level--
		return 0
	}
	return time.Duration((1 - b.level) / b.size * float64(time.Minute))
}
