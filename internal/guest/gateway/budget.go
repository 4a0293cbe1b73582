package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// turnTime bounds a request's wait for others that may use up the budget. Then the client may try again.
	turnTime = 10 * time.Minute
	// bytesPerToken converts sizes into tokens: English text has four bytes a token, code about three.
	bytesPerToken = 3
	// usualOutput is the assumed output of a call, in tokens, when the server did not answer at all.
	usualOutput = 4096
	// fastest exceeds the speed of every model in prices.json, in tokens a second, thoughts and faster services included.
	fastest = 500
	// inFlight is the output, in tokens, that a server may write before it notices that its reader has gone.
	inFlight = 2 * fastest
	// maxCut bounds the broken-off answers that are kept for a later report.
	maxCut = 1000
)

// budget counts the usage and enforces the budget.
//
// A request may begin while the spent sum is below the budget. Its cost is known only at its end, so one request alone
// may exceed the budget. Concurrent requests reserve their highest cost, by prompt and allowed answer, or the cost of
// the dearest request so far. A request that does not fit next to the running ones waits. Before any cost is known, all
// wait for the first.
//
// The received part of a broken-off answer is cost. The rest that the server may bill is a reserve until the provider
// reports the usage. The reserve counts for the budget if the client broke off, or requested so much that the answer
// was not read: otherwise an agent could get around the budget. It does not count if the server broke off.
type budget struct {
	mu     sync.Mutex
	budget *float64
	over   chan struct{} // closed when a request was refused because the budget is spent
	shut   bool          // over is closed

	requests int64
	sum      workorder.Usage // CostUSD is not used
	usd      float64
	reserved float64              // by answers that broke off
	held     float64              // the part of reserved that counts for the budget
	cut      map[string]*callCost // the broken-off answers, by the provider's answer id
	// estimated means that part of sum and usd is not reported by the provider.
	estimated bool
	// unknown is the reason why the cost is not known, from the first such request on.
	unknown string
	dearest float64
	known   bool // a request has reported its cost
	running map[*callCost]bool
	changed chan struct{} // closed and replaced when a request ends or the budget changes
}

type callCost struct {
	budget  *budget
	reserve float64 // the most that it can cost, by its content
	used    tokens
	usd     float64
	left    bool    // its client has gone
	beyond  float64 // possible cost beyond usd, if its answer broke off
	holds   bool    // beyond counts for the budget
	model   string  // the requested model, if its answer broke off
}

// most is the highest total cost of the request. b.mu is held.
func (c *callCost) most() float64 { return max(c.reserve, c.budget.dearest) }

func (b *budget) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *budget) setBudget(usd *float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget = nil
	if usd != nil {
		b.budget = new(*usd)
	}
	if b.shut && (b.budget == nil || b.spent() < *b.budget) {
		b.over, b.shut = make(chan struct{}), false
	}
	b.notify()
}

func (b *budget) overBudget() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// enter admits a request that can cost this much; priced is false if its price is not known.
func (b *budget) enter(ctx context.Context, model string, most float64, priced bool) (*callCost, *refusal) {
	deadline := time.NewTimer(turnTime)
	defer deadline.Stop()
	for {
		c, no, wait := b.tryEnter(model, most, priced)
		if wait == nil {
			return c, no
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
func (b *budget) tryEnter(model string, most float64, priced bool) (*callCost, *refusal, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &callCost{budget: b, reserve: most}
	if b.budget != nil {
		if no := b.refuse(model, priced); no != nil {
			return nil, no, nil
		}
		if len(b.running) > 0 && (!b.known && b.attended() || b.spent()+b.open()+c.most() > *b.budget) {
			return nil, nil, b.changed
		}
	}
	b.running[c] = true
	b.requests++
	return c, nil, nil
}

// refuse returns why no request may pass at all. b.mu is held and there is a budget.
func (b *budget) refuse(model string, priced bool) *refusal {
	const what = "; add its price to gateway.prices of the project, or drop max_budget_usd"
	switch {
	case b.spent() >= *b.budget:
		if !b.shut {
			close(b.over)
			b.shut = true
		}
		return &refusal{
			status: http.StatusBadRequest, kind: "budget_exceeded",
			text: fmt.Sprintf(
				"the budget of this task (max_budget_usd) is spent: $%.4g of $%.4g; no more model calls are possible, end your work now", b.spent(),
				*b.budget,
			),
		}
	case b.unknown != "":
		return &refusal{status: http.StatusBadRequest, kind: "cost_unknown", text: "the budget cannot be enforced: " + b.unknown + what}
	case !priced:
		return &refusal{
			status: http.StatusBadRequest, kind: "price_unknown",
			text: fmt.Sprintf("the budget cannot be enforced with the model %q, whose price is unknown", clean(model)) + what,
		}
	}
	return nil
}

// spent is the sum that counts for the budget. b.mu is held.
func (b *budget) spent() float64 { return b.usd + b.held }

// attended reports whether a client waits for a running request. Others do not count: their highest cost is known. b.mu
// is held.
func (b *budget) attended() bool {
	for c := range b.running {
		if !c.left {
			return true
		}
	}
	return false
}

// open is the possible further cost of the running requests. b.mu is held.
func (b *budget) open() (usd float64) {
	for c := range b.running {
		usd += max(c.most()-c.usd, 0)
	}
	return usd
}

// update replaces the request's usage so far. cost is nil if it is not known, for the reason why.
func (c *callCost) update(t tokens, cost *float64, why string) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum.InputTokens += t.input - c.used.input
	b.sum.OutputTokens += t.output - c.used.output
	b.sum.CacheReadTokens += t.cacheRead - c.used.cacheRead
	b.sum.CacheWriteTokens += t.cacheWrite - c.used.cacheWrite
	c.used = t
	if cost == nil {
		b.unknown = cmp.Or(b.unknown, why)
		return
	}
	b.usd += *cost - c.usd
	c.usd = *cost
}

// final marks the request's cost as complete and not estimated.
func (c *callCost) final() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.budget.dearest = max(c.budget.dearest, c.usd)
	c.budget.known = true
}

// breakOff records the possible cost beyond the known one. id is the provider's answer id, or "".
func (c *callCost) breakOff(beyond float64, holds bool, id, model string) {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.estimated = true
	c.beyond, c.holds, c.model = beyond, holds, model
	b.reserved += beyond
	if holds {
		b.held += beyond
	}
	if id != "" && len(b.cut) < maxCut {
		b.cut[id] = c
	}
}

// cutOf returns the requested model of the broken-off answer with that id; ok is false if its usage is not awaited.
func (b *budget) cutOf(id string) (model string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.cut[id]; c != nil {
		return c.model, true
	}
	return "", false
}

// evidence records the whole usage and cost of a broken-off answer, and frees its reserve.
func (b *budget) evidence(id string, t tokens, usd float64) {
	b.mu.Lock()
	c := b.cut[id]
	if c == nil {
		b.mu.Unlock()
		return
	}
	delete(b.cut, id)
	b.reserved -= c.beyond
	if c.holds {
		b.held -= c.beyond
	}
	c.beyond = 0
	b.notify()
	b.mu.Unlock()
	c.update(t, &usd, "")
}

// abandon marks that the client has gone and only the gateway waits for the end of the request.
func (c *callCost) abandon() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.left = true
	c.budget.notify()
}

func (c *callCost) leave() {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	delete(c.budget.running, c)
	c.budget.notify()
}

func (b *budget) usage() (workorder.Usage, int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(), b.requests
}

// account returns the usage so far. b.mu is held.
func (b *budget) account() workorder.Usage {
	u := b.sum
	u.ReservedUSD, u.Estimated = b.reserved, b.estimated
	if b.unknown == "" || b.usd > 0 {
		// If the cost of a call is unknown, the rest is a lower bound, which later attempts of the task must count.
		u.CostUSD, u.CostSource = new(b.usd), workorder.CostByGateway
		u.Estimated = u.Estimated || b.unknown != ""
	}
	return u
}

// settle returns the usage once only the gateway waits for requests, or at ctx's end with the possible cost of running ones.
func (b *budget) settle(ctx context.Context) (workorder.Usage, int64) {
	for {
		b.mu.Lock()
		var open float64
		waits := false
		for c := range b.running {
			if c.left {
				waits = true
				open += max(c.reserve-c.usd, 0)
			}
		}
		changed := b.changed
		over := ctx.Err() != nil
		u, n := b.account(), b.requests
		u.ReservedUSD += open
		b.mu.Unlock()
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
