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
	// turnTime bounds the wait of a request for others that may use up the budget:
	// longer than models take for an answer. Then the client may try again.
	turnTime = 10 * time.Minute
	// bytesPerToken turns sizes into tokens where nobody counted them: English text has
	// four, code and other languages rather three.
	bytesPerToken = 3
	// usualOutput is what a call is taken to have answered, in tokens, when the server did not answer at all.
	usualOutput = 4096
)

// ledger counts what was used, and keeps to the budget.
//
// A request may begin while less than the budget is spent. What it will cost is known only at its end, so
// one request at a time may go over. For several at a time each reserves the most that it can cost by its
// prompt and the answer it allows, or the cost of the dearest one so far if that is more; one that does not
// fit beside those that are under way waits for them, and before the cost of any is known all wait for the
// first. So the budget is overshot by at most one request that runs alone, or by how much those under way
// together cost more than they reserved: a server can do work that the request does not show.
type ledger struct {
	mu     sync.Mutex
	budget *float64
	over   chan struct{} // closed: a request was refused because the budget is spent
	shut   bool          // over is closed

	requests int64
	sum      workorder.Usage // CostUSD is not used
	usd      float64
	// unknown says why the cost is not known, from the first such request on.
	unknown string
	dearest float64
	known   bool // a request said at its end what it cost
	running map[*entry]bool
	changed chan struct{} // closed and replaced when a request ends or the budget changes
}

func newLedger() *ledger {
	return &ledger{over: make(chan struct{}), changed: make(chan struct{}), running: map[*entry]bool{}}
}

// entry is one request in the ledger.
type entry struct {
	l       *ledger
	reserve float64 // the most that it can cost by what it asks for
	used    tokens
	usd     float64
	left    bool // its client has gone
}

// most is what the request may cost in all. l.mu is held.
func (e *entry) most() float64 { return max(e.reserve, e.l.dearest) }

// notify wakes those who wait. l.mu is held.
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
	if l.shut && (l.budget == nil || l.usd < *l.budget) {
		l.over, l.shut = make(chan struct{}), false
	}
	l.notify()
}

func (l *ledger) overBudget() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// enter admits a request that can cost that much; priced is false when nobody knows its price.
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
				text: "requests under way may use up the budget, and this one waited too long for them",
			}
		}
	}
}

// tryEnter returns a channel to wait for when the answer depends on others.
func (l *ledger) tryEnter(model string, most float64, priced bool) (*entry, *refusal, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry{l: l, reserve: most}
	if l.budget != nil {
		if no := l.refuse(model, priced); no != nil {
			return nil, no, nil
		}
		if len(l.running) > 0 && (!l.known || l.usd+l.reserved()+e.most() > *l.budget) {
			return nil, nil, l.changed
		}
	}
	l.running[e] = true
	l.requests++
	return e, nil, nil
}

// refuse says why no request at all may pass. l.mu is held and there is a budget.
func (l *ledger) refuse(model string, priced bool) *refusal {
	const what = "; add its price to gateway.prices of the project, or drop max_budget_usd"
	switch {
	case l.usd >= *l.budget:
		if !l.shut {
			close(l.over)
			l.shut = true
		}
		return &refusal{
			status: http.StatusBadRequest, kind: "budget_exceeded",
			text: fmt.Sprintf("the budget of this task (max_budget_usd) is spent: $%.4g of $%.4g; no model can be used any more, end your work now", l.usd, *l.budget),
		}
	case l.unknown != "":
		return &refusal{status: http.StatusBadRequest, kind: "cost_unknown", text: "the budget cannot be kept: " + l.unknown + what}
	case !priced:
		return &refusal{
			status: http.StatusBadRequest, kind: "price_unknown",
			text: fmt.Sprintf("the budget cannot be kept with the model %q, whose price is not known", clean(model)) + what,
		}
	}
	return nil
}

// reserved is what the requests under way may still cost. l.mu is held.
func (l *ledger) reserved() (usd float64) {
	for e := range l.running {
		usd += max(e.most()-e.usd, 0)
	}
	return usd
}

// update replaces what the request has used so far. cost is nil when it is not known; why says why.
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

// final says that the cost of the request is the whole of it, and no estimate.
func (e *entry) final() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.dearest = max(e.l.dearest, e.usd)
	e.l.known = true
}

// abandon says that only the gateway waits for the end of the request.
func (e *entry) abandon() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.left = true
}

// leave ends the request.
func (e *entry) leave() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	delete(e.l.running, e)
	e.l.notify()
}

func (l *ledger) usage() (workorder.Usage, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(l.usd), l.requests
}

// account is the usage at that cost. l.mu is held.
func (l *ledger) account(usd float64) workorder.Usage {
	u := l.sum
	if l.unknown == "" {
		u.CostUSD, u.CostSource = &usd, workorder.CostByGateway
	}
	return u
}

// settle is the usage when nobody but us waits for a request any more. When ctx ends
// before, it has the most that those can still cost.
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
		u, n := l.account(l.usd+open), l.requests
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

// bucket limits requests per minute: so many at once, and as many again in every minute.
type bucket struct {
	mu    sync.Mutex
	size  float64
	level float64
	at    time.Time
}

func newBucket(perMinute int) *bucket {
	return &bucket{size: float64(perMinute), level: float64(perMinute)}
}

// take takes one; else it says how long until there is one.
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
