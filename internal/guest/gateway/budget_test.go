package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// dollar makes each call cost a tenth of a dollar.
func dollar(w http.ResponseWriter, _ *http.Request) {
	message(w, `{"input_tokens":50000,"output_tokens":0}`) // claude-sonnet-5-5: 2 dollars for a million
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBench(t, dollar, nil)
	post := func() (int, string) {
		status, body, _ := b.post("/anthropic/v1/messages", ask1)
		return status, body
	}
	post() // by setup, without a budget
	b.SetBudget(new(0.25))
	for range 2 {
		if status, body := post(); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	over := b.OverBudget()
	if closed(over) {
		t.Error("over before a request was refused")
	}
	status, body := post()
	if status != 400 || !strings.Contains(body, `"invalid_request_error"`) || !strings.Contains(body, "$0.3 ") || !strings.Contains(body, "$0.25") || !closed(over) || b.requests() != 3 {
		t.Errorf("%d %s", status, body)
	}
	b.refused(4, "budget_exceeded")
	if status, _, _ := b.post("/openai/v1/responses", `{"model":"gpt-5"}`); status != 400 {
		t.Errorf("the other API: %d", status)
	}
	if status, _, _ := b.post("/anthropic/v1/messages/count_tokens", ask1); status != 200 {
		t.Errorf("what costs nothing: %d", status)
	}
	b.SetBudget(new(1.0))
	if status, body := post(); status != 200 || closed(b.OverBudget()) {
		t.Errorf("after it was raised: %d %s", status, body)
	}
}

// TestBudgetWantsPrices: with a budget nothing passes whose cost would not be known.
func TestBudgetWantsPrices(t *testing.T) {
	t.Parallel()
	serve := func(w http.ResponseWriter, _ *http.Request) { message(w, "null") }
	b := newBench(t, serve, nil)
	b.SetBudget(new(5.0))
	for i, body := range []string{`{"model":"mystery"}`, `{}`, `{"model":5}`, `{"model":"claude-sonnet-4-5-mini"}`} {
		status, got, _ := b.post("/anthropic/v1/messages", body)
		if status != 400 || !strings.Contains(got, "gateway.prices") || b.requests() != 0 {
			t.Errorf("%s: %d %s", body, status, got)
		}
		b.refused(i+1, "price_unknown")
	}
	if status, _, _ := b.post("/anthropic/v1/messages", ask1); status != 200 {
		t.Errorf("known model: %d", status)
	}
	status, got, _ := b.post("/anthropic/v1/messages", ask1) // the answer did not say what it used
	if status != 400 || closed(b.OverBudget()) {
		t.Errorf("%d %s", status, got)
	}
	b.refused(6, "cost_unknown")
	b.wants(workorder.Usage{}, 1, -1)
}

// TestBudgetBound: many at a time overshoot by no more than one alone would, once the
// cost of a call is known.
func TestBudgetBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, dollar, nil)
	b.SetBudget(new(1.05))
	b.post("/anthropic/v1/messages", ask1)
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range 40 {
		all.Go(func() {
			status, _, _ := b.post("/anthropic/v1/messages", ask1)
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	all.Wait()
	if fmt.Sprint(answers) != "map[200:10 400:30]" {
		t.Errorf("answers %v", answers)
	}
	if u, _ := b.Usage(); *u.CostUSD > 1.05+0.1+1e-9 {
		t.Errorf("spent %v of 1.05, a call costs 0.1", *u.CostUSD)
	}
}

// TestBudgetInFlight: those under way are the bound, and a request that waits for them goes on when they are done.
// A call may cost as much as an earlier one, or as much as it asks for itself.
func TestBudgetInFlight(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"as one before": ask1,
		"as it asks":    `{"model":"claude-sonnet-5-5","max_tokens":10000}`, // at 10 dollars a million, and a tenth more in the United States
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release, arrived := make(chan struct{}), make(chan struct{}, 20)
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-release
				dollar(w, r)
			}, nil)
			var first sync.WaitGroup
			first.Go(func() { b.post("/anthropic/v1/messages", ask1) })
			release <- struct{}{}
			first.Wait()
			<-arrived
			b.SetBudget(new(0.1 + 0.37)) // three, and then one that runs alone
			var all sync.WaitGroup
			answers := make(chan int, 10)
			for range 10 {
				all.Go(func() {
					status, _, _ := b.post("/anthropic/v1/messages", body)
					answers <- status
				})
			}
			for range 3 {
				<-arrived
			}
			close(release)
			all.Wait()
			close(answers)
			n := map[int]int{}
			for s := range answers {
				n[s]++
			}
			if n[200] != 4 || n[400] != 6 {
				t.Errorf("answers %v", n)
			}
		})
	}
}

// TestBudgetBeforeACostIsKnown: the first call runs alone, because it may cost more than it looks like.
func TestBudgetBeforeACostIsKnown(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		dollar(w, r)
		now.Add(-1)
	}, nil)
	b.SetBudget(new(0.05))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.post("/anthropic/v1/messages", ask1) })
	}
	all.Wait()
	if most.Load() != 1 || b.requests() != 1 {
		t.Errorf("%d requests, %d at a time", b.requests(), most.Load())
	}
}

func TestRequestsPerMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t, dollar, func(c *ModelsConfig) { c.Gateway.RequestsPerMinute = 2 })
	for i := range 3 {
		status, body, h := b.post("/openai/v1/responses", `{"model":"gpt-5"}`)
		if i < 2 && status != 200 || i == 2 && (status != 429 || h.Get("Retry-After") == "" || !strings.Contains(body, `"code":"rate_limit"`)) {
			t.Errorf("%d: %d %v %s", i, status, h, body)
		}
	}
	if b.requests() != 2 {
		t.Errorf("%d requests", b.requests())
	}
	if status, _, h := b.do("GET", "/anthropic/api/hello", "", nil); status != 429 || h.Get("Retry-After") == "" {
		t.Errorf("an operation without a key: %d", status)
	}
	k := newBucket(6)
	now := time.Unix(0, 0)
	for range 6 {
		if k.take(now) != 0 {
			t.Error("six at once")
		}
	}
	if wait := k.take(now); wait != 10*time.Second {
		t.Errorf("wait %v", wait)
	}
	if wait := k.take(now.Add(10 * time.Second)); wait != 0 {
		t.Errorf("after ten seconds: wait %v", wait)
	}
	if wait := k.take(now.Add(time.Hour)); wait != 0 || k.level != 5 {
		t.Errorf("after an hour: wait %v, level %v", wait, k.level)
	}
}
