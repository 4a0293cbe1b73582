package gateway

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cutAfter sends these events and breaks off: the connection, or, when it ends well, only the answer.
func cutAfter(clean bool, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		sse(w, events...)
		if !clean {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// thousand is an answer of a thousand tokens without its end.
func thousand(first string, word func(string) string) []string {
	events := []string{first}
	for range 100 {
		events = append(events, word(strings.Repeat("word ", 6)))
	}
	return events
}

// TestCutStreams: ten streams of an expensive model that allow long answers break off after a thousand tokens
// each. The received part is cost, the possible rest is shown separately, and a budget is not used up by
// tokens that were never received.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	anthropic := thousand(
		`data: {"type":"message_start","message":{"model":"mine","usage":{"input_tokens":1000,"output_tokens":1}}}`,
		func(s string) string {
			return `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + s + `"}}`
		})
	thinking := append([]string{anthropic[0], `data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`}, anthropic[1:]...)
	chat := thousand(`data: {"model":"mine","choices":[]}`, func(s string) string { return `data: {"model":"mine","choices":[{"delta":{"content":"` + s + `"}}]}` })
	const messages, completions = "/anthropic/v1/messages", "/openai/v1/chat/completions"
	for name, c := range map[string]struct {
		path  string
		serve http.HandlerFunc
	}{
		"the connection":             {messages, cutAfter(false, anthropic...)},
		"the answer":                 {messages, cutAfter(true, anthropic...)},
		"the server says so":         {messages, cutAfter(true, append(anthropic, `data: {"type":"error","error":{"type":"api_error"}}`)...)},
		"hidden thoughts":            {messages, cutAfter(false, thinking...)},
		"OpenAI's, the connection":   {completions, cutAfter(false, chat...)},
		"OpenAI's, the answer alone": {completions, cutAfter(true, chat...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.serve, func(c *ModelsConfig) {
				c.Gateway.Prices = map[string]workorder.ModelPrice{"mine": {Input: 15, Output: 75}}
			})
			b.SetBudget(new(5.0))
			for i := range 10 {
				answer, _ := b.begin(c.path, fmt.Sprintf(`{"model":"mine","stream":true,"max_tokens":32000,"i":%d}`, i))
				resp := <-answer
				if resp == nil || resp.StatusCode != 200 {
					t.Fatalf("call %d: %+v", i, resp)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			waitFor(t, "the audit", func() bool { return len(b.lines()) == 10 })
			u, n := b.Usage()
			// Ten times a thousand tokens, or a few more where names of fields count, too.
			if n != 10 || u.CostUSD == nil || *u.CostUSD < 10*1000*75/1e6 || *u.CostUSD > 2 || u.OutputTokens < 10_000 || u.OutputTokens > 20_000 {
				t.Errorf("%+v, cost %v", u, show(u.CostUSD))
			}
			if !u.Estimated || u.ReservedUSD <= 0 || u.ReservedUSD > 24 || b.held() != 0 {
				t.Errorf("%+v, held %v", u, b.held())
			}
			var cost, reserved float64
			for _, l := range b.lines() {
				if !l.Estimate || l.CostUSD == nil {
					t.Fatalf("audit %+v", l)
				}
				cost, reserved = cost+*l.CostUSD, reserved+l.ReservedUSD
			}
			if math.Abs(cost-*u.CostUSD) > 1e-9 || math.Abs(reserved-u.ReservedUSD) > 1e-9 {
				t.Errorf("the audit has %v and %v, the ledger %+v", cost, reserved, u)
			}
		})
	}
}

// TestMostWritten is the bound of an answer that broke off.
func TestMostWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, dollar, nil)
	for name, c := range map[string]struct {
		call func(*call)
		r    usageState
		want int64
	}{
		"a token of text has a byte":   {func(c *call) { c.ask.stream = true }, usageState{said: 300}, 300 + inFlight},
		"or it is the server's count":  {func(c *call) { c.ask.stream = true }, usageState{said: 300, tokens: tokens{output: 700}}, 700 + inFlight},
		"not more than was asked for":  {func(c *call) { c.ask.stream, c.ask.most = true, 350 }, usageState{said: 300}, 350},
		"thoughts are bounded by time": {func(c *call) { c.ask.stream = true }, usageState{said: 300, hidden: true}, 60*fastest + inFlight},
		"so is what said nothing":      {func(c *call) { c.ask.stream = true }, usageState{}, 60*fastest + inFlight},
		"in one piece":                 {func(*call) {}, usageState{}, 100_000},
		"given up":                     {func(c *call) { c.ask.stream = true; c.client.gone.Store(true) }, usageState{said: 300}, 100_000},
		"not read":                     {func(c *call) { c.unread = true }, usageState{}, 100_000},
		"no answer":                    {func(c *call) { c.line.Status = 0 }, usageState{}, usualOutput},
	} {
		r := c.r
		k := &call{m: b.Models, ask: ask{most: 100_000}, line: line{Status: 200}}
		k.r, _ = http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		k.line.Time = time.Now().Add(-time.Minute)
		c.call(k)
		got := k.mostWritten(&r, max(r.output, r.said/bytesPerToken))
		if slack := int64(30 * fastest); got < c.want || got > c.want && (got-c.want > slack || c.want != 60*fastest+inFlight) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestEvidence: what the provider says later of an answer that broke off takes the place of the estimate.
func TestEvidence(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"input_tokens":2000,"output_tokens":3000}`
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"resp_1","object":"response","model":"gpt-5",`+usage+`}`)
			return
		}
		cutAfter(false, `data: {"type":"response.created","response":{"id":"resp_1","model":"gpt-5"}}`, `data: {"type":"response.output_text.delta","delta":"hello"}`)(w, r)
	}, nil)
	answer, _ := b.begin("/openai/v1/responses", `{"model":"gpt-5","stream":true}`)
	resp := <-answer
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	waitFor(t, "the reserve", func() bool { u, _ := b.Usage(); return u.ReservedUSD > 0 })
	for range 2 { // the second has nothing left to free
		if status, got, _ := b.do("GET", "/openai/v1/responses/resp_1", "", map[string]string{"Authorization": "Bearer " + b.env["OPENAI_API_KEY"]}); status != 200 || !strings.Contains(got, usage) {
			t.Fatalf("%d %s", status, got)
		}
		u, _ := b.Usage()
		if u.ReservedUSD != 0 || u.InputTokens != 2000 || u.OutputTokens != 3000 || u.CostUSD == nil || math.Abs(*u.CostUSD-(2000*1.25+3000*10)/1e6) > 1e-9 {
			t.Errorf("%+v %v", u, show(u.CostUSD))
		}
	}
}

// TestEvidenceWithoutPrice: a later report of an answer replaces the reserve if it states what the answer
// cost.
func TestEvidenceWithoutPrice(t *testing.T) {
	t.Parallel()
	const used = `"usage":{"input_tokens":2000,"output_tokens":3000}`
	for name, c := range map[string]struct {
		told string
		free bool
	}{
		"no model is named, the one asked for counts": {`{"id":"resp_1","object":"response",` + used + `}`, true},
		"what it used has no price":                   {`{"id":"resp_1","object":"response","model":"gpt-5","output":[{"type":"code_interpreter_call"}],` + used + `}`, false},
	} {
		b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, c.told)
				return
			}
			cutAfter(false, `data: {"type":"response.created","response":{"id":"resp_1","model":"gpt-5"}}`, `data: {"type":"response.output_text.delta","delta":"hello"}`)(w, r)
		}, nil)
		answer, _ := b.begin("/openai/v1/responses", `{"model":"gpt-5","stream":true}`)
		resp := <-answer
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		waitFor(t, "the reserve", func() bool { u, _ := b.Usage(); return u.ReservedUSD > 0 })
		was, _ := b.Usage()
		b.do("GET", "/openai/v1/responses/resp_1", "", map[string]string{"Authorization": "Bearer " + b.env["OPENAI_API_KEY"]})
		switch u, _ := b.Usage(); {
		case c.free && (u.ReservedUSD != 0 || u.CostUSD == nil || math.Abs(*u.CostUSD-(2000*1.25+3000*10)/1e6) > 1e-9):
			t.Errorf("%s: %+v %v", name, u, show(u.CostUSD))
		case !c.free && (u.ReservedUSD != was.ReservedUSD || *u.CostUSD != *was.CostUSD):
			t.Errorf("%s: %+v after %+v", name, u, was)
		}
	}
}
