package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// begin sends a request and returns when the gateway has it at the server, or its answer has begun.
// hangUp ends the connection.
func (b *bench) begin(path, body string) (resp <-chan *http.Response, hangUp func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+b.addr+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
	if strings.HasPrefix(path, "/openai") {
		req.Header.Set("X-Api-Key", b.env["OPENAI_API_KEY"])
	}
	c := make(chan *http.Response, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			c <- resp
		}
		close(c)
	}()
	return c, cancel
}

// abandoned is how many calls go on without their clients.
func (b *bench) abandoned() (n int) {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	for e := range b.budget.running {
		if e.left {
			n++
		}
	}
	return n
}

// TestAbort: a call runs to its end when its client goes away, and is metered exactly.
func TestAbort(t *testing.T) {
	t.Parallel()
	chat := []string{
		`data: {"model":"gpt-5","choices":[{"delta":{"content":"0123456789"}}]}`,
		`data: {"model":"gpt-5","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":9000,"completion_tokens_details":{"reasoning_tokens":8990}}}`,
	}
	for name, c := range map[string]struct {
		first, then []string // events; no first: the answer has not begun
		path, body  string
		want        workorder.Usage
	}{
		"in the middle": {
			anthropicEvents(500, 9)[:2], anthropicEvents(500, 9)[2:], "/anthropic/v1/messages", ask1,
			workorder.Usage{InputTokens: 500, OutputTokens: 9, CacheReadTokens: 100, CacheWriteTokens: 30},
		},
		"before usage, with hidden reasoning": {
			chat[:1], chat[1:], "/openai/v1/chat/completions", `{"model":"gpt-5","stream":true}`, workorder.Usage{InputTokens: 1000, OutputTokens: 9000},
		},
		"before the answer": {
			nil, anthropicEvents(500, 9), "/anthropic/v1/messages", ask1,
			workorder.Usage{InputTokens: 500, OutputTokens: 9, CacheReadTokens: 100, CacheWriteTokens: 30},
		},
		"of a conversation that the server remembers": {
			[]string{`data: {"type":"response.created","response":{"model":"gpt-5"}}`},
			[]string{`data: {"type":"response.completed","response":{"model":"gpt-5","usage":{"input_tokens":70000,"output_tokens":5}}}`},
			"/openai/v1/responses", `{"model":"gpt-5","stream":true,"previous_response_id":"r1"}`,
			workorder.Usage{InputTokens: 70000, OutputTokens: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				if c.first != nil {
					sse(w, c.first...)
					http.NewResponseController(w).Flush()
				}
				close(arrived)
				select {
				case <-release:
					sse(w, c.then...)
				case <-r.Context().Done():
				}
			}, nil)
			answer, hangUp := b.begin(c.path, c.body)
			<-arrived
			if c.first != nil {
				resp := <-answer
				defer resp.Body.Close()
				if _, err := io.ReadAtLeast(resp.Body, make([]byte, 1000), 10); err != nil {
					t.Fatal(err)
				}
			}
			hangUp()
			waitFor(t, "the hang-up", func() bool { return b.abandoned() == 1 })
			close(release)
			waitFor(t, "the audit", func() bool { return len(b.lines()) == 1 })
			u, _ := b.Usage()
			if u.CostUSD == nil {
				t.Fatal("the cost is not known")
			}
			b.wants(c.want, 1, *u.CostUSD)
			if l := b.lines()[0]; l.Estimate || l.Output != c.want.OutputTokens {
				t.Errorf("audit %+v", l)
			}
		})
	}
}

// held is what counts for the budget without being known.
func (b *bench) held() float64 {
	b.budget.mu.Lock()
	defer b.budget.mu.Unlock()
	return b.budget.held
}

// TestAbortWithoutEnd: of a call whose client has gone and whose answer never ends all that it may have used is reserved.
func TestAbortWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events int
		want   float64
	}{
		"no answer":     {0, (6*1000*3.75 + 20000*15) / 1e6},                     // the prompt by its size, as if it were written to the cache
		"in the middle": {2, (500*3 + 20000*15 + 100*.3 + 10*3.75 + 20*6) / 1e6}, // the prompt as the server counted it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{})
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				if c.events > 0 {
					sse(w, anthropicEvents(500, 9)[:c.events]...)
					http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done() // until the gateway no longer waits
			}, func(c *ModelsConfig) {
				c.limits = limits{answer: 100 * time.Millisecond, write: writeTime, room: roomTime, held: maxHeld}
			})
			body := `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":20000,"messages":[]`
			body += strings.Repeat(" ", 18000-len(body)-1) + "}"
			answer, hangUp := b.begin("/anthropic/v1/messages", body)
			<-arrived
			if c.events > 0 {
				resp := <-answer
				defer resp.Body.Close()
				_, _ = io.ReadAtLeast(resp.Body, make([]byte, 1000), 10)
			}
			hangUp()
			waitFor(t, "the audit", func() bool { return len(b.lines()) == 1 })
			if u, _ := b.Usage(); u.CostUSD == nil || *u.CostUSD > 0.01 || *u.CostUSD+u.ReservedUSD < c.want-1e-9 || *u.CostUSD+u.ReservedUSD > 1.5*c.want || !u.Estimated {
				t.Errorf("%+v cost %v, want %v", u, show(u.CostUSD), c.want)
			}
			// It is held of the budget: who hangs up gets no more than others.
			if u, _ := b.Usage(); b.held() != u.ReservedUSD {
				t.Errorf("held %v of %v", b.held(), u.ReservedUSD)
			}
			b.SetBudget(new(c.want))
			if status, got, _ := b.post("/anthropic/v1/messages", ask1); status != 400 {
				t.Errorf("with a budget of as much: %d %s", status, got)
			}
			b.refused(2, "budget_exceeded")
			if !b.lines()[0].Estimate {
				t.Error("the audit does not say that it is estimated")
			}
		})
	}
}

// TestAbortKeepsBudget: calls that hang up, each worth ten cents, get no more out of a budget than others do.
func TestAbortKeepsBudget(t *testing.T) {
	t.Parallel()
	plain := dollar
	hidden := func(w http.ResponseWriter, _ *http.Request) { // thinks for ten cents, and says nothing of it before the end
		sse(w, anthropicEvents(0, 1)[0], `data: {"type":"message_delta","usage":{"input_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"cache_creation":{"ephemeral_1h_input_tokens":0},"output_tokens":6667}}`)
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		body  string
	}{
		"plain":                                  {plain, ask1},
		"streamed, with hidden reasoning":        {hidden, `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":8000}`},
		"streamed, with more than it asked for":  {hidden, `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":10}`},
		"streamed, and it does not say how much": {hidden, `{"model":"claude-sonnet-4-5","stream":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls, budget = 100, 0.5
			arrived := make(chan int, calls)
			var hungUp, gone [calls]chan struct{}
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				i, _ := strconv.Atoi(r.URL.Query().Get("limit"))
				arrived <- i
				select {
				case <-gone[i]:
					c.serve(w, r)
				case <-r.Context().Done():
				}
			}, nil)
			b.SetBudget(new(budget))
			var all sync.WaitGroup
			for i := range calls {
				hungUp[i], gone[i] = make(chan struct{}), make(chan struct{})
			}
			for i := range calls {
				answer, hangUp := b.begin(fmt.Sprint("/anthropic/v1/messages?limit=", i), c.body)
				all.Go(func() {
					select {
					case <-hungUp[i]:
						hangUp()
					case resp := <-answer:
						if resp == nil || resp.StatusCode != 400 {
							t.Errorf("answer %+v", resp)
							return
						}
						resp.Body.Close()
					}
				})
			}
			refused := make(chan struct{})
			go func() { all.Wait(); close(refused) }()
			sent := 0
			for more := true; more; {
				select {
				case i := <-arrived:
					sent++
					close(hungUp[i])
					waitFor(t, "the hang-up", func() bool { return b.abandoned() == 1 })
					close(gone[i])
					waitFor(t, "the end of the call", func() bool { return b.abandoned() == 0 })
				case <-refused:
					more = false
				}
			}
			u, _ := b.Usage()
			if u.CostUSD == nil || *u.CostUSD > budget+0.1+1e-3 || *u.CostUSD < budget || math.Abs(*u.CostUSD-0.1*float64(sent)) > 1e-3 {
				t.Errorf("%d calls at the server, spent %v of %v", sent, show(u.CostUSD), budget)
			}
		})
	}
}

// TestAbortIsSettled: the possible cost of an abandoned call counts at the end if that comes before its own,
// and not while the agent works, which would be stopped for money that was not spent.
func TestAbortIsSettled(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}, nil)
	_, hangUp := b.begin("/anthropic/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10000}`)
	<-arrived
	if u, _ := b.Usage(); *u.CostUSD != 0 {
		t.Errorf("cost %v at the beginning", *u.CostUSD)
	}
	hangUp()
	waitFor(t, "the hang-up", func() bool { return b.abandoned() == 1 })
	if u, _ := b.Usage(); *u.CostUSD != 0 {
		t.Errorf("cost %v meanwhile", *u.CostUSD)
	}
	hurry, cancel := context.WithCancel(t.Context())
	cancel()
	if u, _ := b.Settle(hurry); *u.CostUSD != 0 || u.ReservedUSD < 0.15 {
		t.Errorf("%+v settled in a hurry", u)
	}
	b.Stop()
	if u, _ := b.Settle(t.Context()); *u.CostUSD != 0 || u.ReservedUSD < 0.15 {
		t.Errorf("cost %v settled", *u.CostUSD)
	}
	if u, _ := b.Usage(); *u.CostUSD != 0 || u.ReservedUSD < 0.15 {
		t.Errorf("cost %v at the end", *u.CostUSD)
	}
}

// TestAbortOfWhatCostsNothing ends it at the server.
func TestAbortOfWhatCostsNothing(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	}, nil)
	_, hangUp := b.begin("/anthropic/v1/messages/count_tokens", ask1)
	<-arrived
	hangUp()
	<-gone
}

// TestAbortHTTP2: a stream of HTTP/2 is read to its end, too.
func TestAbortHTTP2(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-release:
			sse(w, anthropicEvents(5, 7)...)
		case <-r.Context().Done():
		}
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	defer up.Close()
	b := newBench(t, nil, func(c *ModelsConfig) { c.Gateway.Routes[0].BaseURL = up.URL })
	b.trust(up)
	_, hangUp := b.begin("/anthropic/v1/messages", ask1)
	<-arrived
	hangUp()
	waitFor(t, "the hang-up", func() bool { return b.abandoned() == 1 })
	close(release)
	waitFor(t, "the audit", func() bool { return len(b.lines()) == 1 })
	if u, _ := b.Usage(); u.OutputTokens != 7 || b.lines()[0].Estimate {
		t.Errorf("%+v", u)
	}
}

// TestClientThatDoesNotRead is taken for gone, and its call goes on to its end.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		ev := anthropicEvents(5, 7)
		sse(w, ev[0])
		filler := "data: {\"type\":\"ping\",\"x\":\"" + strings.Repeat("x", 60_000) + "\"}"
		for range 400 { // more than the sockets between hold
			if r.Context().Err() != nil {
				return
			}
			sse(w, filler)
		}
		sse(w, ev[1:]...)
	}, func(c *ModelsConfig) {
		// A client that has room for a chunk has a second to be given it, on any machine.
		c.limits = limits{answer: answerTime, write: time.Second, room: roomTime, held: maxHeld}
	})
	answer, _ := b.begin("/anthropic/v1/messages", ask1)
	resp := <-answer
	defer resp.Body.Close()
	<-ended
	waitFor(t, "the audit", func() bool { return len(b.lines()) == 1 })
	if u, _ := b.Usage(); u.OutputTokens != 7 || u.InputTokens != 5 || b.lines()[0].Estimate {
		t.Errorf("%+v, audit %+v", u, b.lines()[0])
	}
	if got := fmt.Sprint(b.abandoned(), b.room.free); got != fmt.Sprint(0, maxHeld) {
		t.Errorf("calls that go on, room: %s", got)
	}
}
