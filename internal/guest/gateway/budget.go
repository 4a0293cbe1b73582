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
	// usualOutput is what a call may have answered, in tokens, when the server did not answer at all.
	usualOutput = 4096
	// fastest is more than any model of prices.json answers, thoughts and faster services included, in tokens a second.
	fastest = 500
	// inFlight is what a server may have written, in tokens, that did not arrive any more: two seconds of the fastest,
	// until it sees that nobody reads.
	inFlight = 2 * fastest
	// maxCut bounds the answers that broke off and may still be told of.
	maxCut = 1000
)

// ledger counts what was used, and keeps to the budget.
//
// A request may begin while less than the budget is spent. Its cost is known only at its end, so
// one request at a time may go over. For several at a time each reserves the most that it can cost by its
// prompt and the answer it allows, or the cost of the dearest one so far if that is more; one that does not
// fit beside those that are under way waits for them, and before the cost of any is known all wait for the
// first, unless its client has given it up. So the budget is overshot by at most one request that runs alone, or by how much those under way
// together cost more than they reserved: a server can do work that the request does not show.
//
// Of an answer that broke off, what was seen is cost. The amount that the server may bill beyond it is a reserve, which is shown apart until
// something tells. It counts for the budget where the client gave the call up, or asked for so much at a time that it was not
// read: else who does so would get more out of a budget than others. Where the server broke off, it does not: that is nobody's
// doing in the box.
type ledger struct {
	mu     sync.Mutex
	budget *float64
	over   chan struct{} // closed: a request was refused because the budget is spent
	shut   bool          // over is closed

	requests int64
	sum      workorder.Usage // CostUSD is not used
	usd      float64
	reserved float64           // by answers that broke off
	held     float64           // the part of it that counts for the budget
	cut      map[string]*entry // of those, by the provider's id of the answer
	// estimated: some of sum and usd is not the provider's word.
	estimated bool
	// unknown says why the cost is not known, from the first such request on.
	unknown string
	dearest float64
	known   bool // a request said at its end what it cost
	running map[*entry]bool
	changed chan struct{} // closed and replaced when a request ends or the budget changes
}

func newLedger() *ledger {
	return &ledger{over: make(chan struct{}), changed: make(chan struct{}), running: map[*entry]bool{}, cut: map[string]*entry{}}
}

// entry is one request in the ledger.
type entry struct {
	l       *ledger
	reserve float64 // the most that it can cost by what it asks for
	used    tokens
	usd     float64
	left    bool    // its client has gone
	beyond  float64 // what it may have cost beyond usd, when its answer broke off
	holds   bool    // that counts for the budget
	model   string  // that was asked for, when its answer broke off
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
		if len(l.running) > 0 && (!l.known && l.attended() || l.spent()+l.open()+e.most() > *l.budget) {
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
	case l.spent() >= *l.budget:
		if !l.shut {
			close(l.over)
			l.shut = true
		}
		return &refusal{
			status: http.StatusBadRequest, kind: "budget_exceeded",
			text: fmt.Sprintf("the budget of this task (max_budget_usd) is spent: $%.4g of $%.4g; no model can be used any more, end your work now", l.spent(), *l.budget),
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

// spent is what counts for the budget. l.mu is held.
func (l *ledger) spent() float64 { return l.usd + l.held }

// attended reports whether a client waits for a request under way: one that was given up may take long, and what it asks for is
// what it costs at most. l.mu is held.
func (l *ledger) attended() bool {
	for e := range l.running {
		if !e.left {
			return true
		}
	}
	return false
}

// open is what the requests under way may still cost. l.mu is held.
func (l *ledger) open() (usd float64) {
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

// breakOff says that the request may have cost so much beyond what is known of it. holds: that counts for the budget. id is
// the provider's name for the answer, if it has one; model is the one that was asked for.
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

// cutOf is the model that was asked for an answer of that id which broke off; ok is false when there is none, or it was told of.
func (l *ledger) cutOf(id string) (model string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.cut[id]; e != nil {
		return e.model, true
	}
	return "", false
}

// evidence is what the answer of that id, which broke off, used and cost in all. Its reserve is free then.
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

// abandon says that only the gateway waits for the end of the request.
func (e *entry) abandon() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.left = true
	e.l.notify()
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
	return l.account(), l.requests
}

// account is the usage so far. l.mu is held.
func (l *ledger) account() workorder.Usage {
	u := l.sum
	u.ReservedUSD, u.Estimated = l.reserved, l.estimated
	if l.unknown == "" || l.usd > 0 {
		// Beside a call whose cost nobody knows the rest is a lower bound, which later attempts of the task have to count.
		u.CostUSD, u.CostSource = new(l.usd), workorder.CostByGateway
		u.Estimated = u.Estimated || l.unknown != ""
	}
	return u
}

// settle is the usage when nobody but us waits for a request any more. When ctx ends
// before, what those can still cost is reserved.
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
