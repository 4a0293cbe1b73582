package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	realAnthropic = "sk-ant-real-0123456789"
	realOAuth     = "oat-real-9876543210"
	realOpenAI    = "sk-openai-real-5555555"
)

// safe is a buffer for more than one writer.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// bench is a gateway before a scripted server.
type bench struct {
	*Models
	t          *testing.T
	env        map[string]string
	log, audit safe
	mu         sync.Mutex
	seen       []*http.Request // what the server got
	bodies     []string
}

// newBench starts both. change may be nil.
func newBench(t *testing.T, serve http.HandlerFunc, change func(*ModelsConfig)) *bench {
	t.Helper()
	b := &bench{t: t}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		b.mu.Lock()
		b.seen, b.bodies = append(b.seen, r.Clone(context.WithoutCancel(r.Context()))), append(b.bodies, string(body))
		b.mu.Unlock()
		serve(w, r)
	}))
	t.Cleanup(up.Close)
	c := ModelsConfig{
		Gateway: workorder.Gateway{Routes: []workorder.ModelRoute{
			{API: workorder.APIAnthropic, BaseURL: up.URL + "/prefix/v1/", Keys: []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"}},
			{API: workorder.APIOpenAI, BaseURL: up.URL, Keys: []string{"OPENAI_API_KEY"}},
		}},
		Secrets: map[string]string{"ANTHROPIC_API_KEY": realAnthropic, "CLAUDE_CODE_OAUTH_TOKEN": realOAuth, "OPENAI_API_KEY": realOpenAI},
		Audit:   &b.audit, Log: slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c)
	}
	m, err := NewModels(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Models, b.env = m, m.Env()
	t.Cleanup(func() {
		m.Stop()
		for _, key := range []string{realAnthropic, realOAuth, realOpenAI} {
			if strings.Contains(b.log.String()+b.audit.String(), key) {
				t.Errorf("%s is in the log or the audit", key)
			}
		}
	})
	return b
}

func (b *bench) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen)
}

// lines are the audit's.
func (b *bench) lines() (all []line) {
	b.t.Helper()
	for s := range strings.Lines(b.audit.String()) {
		var l line
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			b.t.Fatalf("%v in %q", err, s)
		}
		all = append(all, l)
	}
	return all
}

// post sends a body as the CLI of the API would. It is safe for concurrent use.
func (b *bench) post(path, body string) (int, string, http.Header) {
	return b.do("POST", path, body, nil)
}

func (b *bench) do(method, path, body string, header map[string]string) (int, string, http.Header) {
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.addr+path, strings.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return 0, "", nil
	}
	if strings.HasPrefix(path, "/anthropic") {
		req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
	} else {
		req.Header.Set("Authorization", "Bearer "+b.env["OPENAI_API_KEY"])
	}
	for k, v := range header {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1, err.Error(), nil
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, string(got) + err.Error(), resp.Header
	}
	return resp.StatusCode, string(got), resp.Header
}

// raw sends bytes and returns the beginning of what comes back.
func (b *bench) raw(request string) string {
	b.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.t.Context(), "tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func (b *bench) wants(u workorder.Usage, requests int64, usd float64) {
	b.t.Helper()
	got, n := b.Usage()
	cost := got.CostUSD
	if n != requests || (cost == nil) != (usd < 0) || cost != nil && math.Abs(*cost-usd) > 1e-12 {
		b.t.Errorf("%d requests for %v, want %d for %v", n, show(cost), requests, usd)
	}
	if source := workorder.CostByGateway; cost != nil && got.CostSource != source || cost == nil && got.CostSource != "" {
		b.t.Errorf("cost source %q", got.CostSource)
	}
	got.CostUSD, got.CostSource = nil, ""
	if got != u {
		b.t.Errorf("usage %+v, want %+v", got, u)
	}
}

func show(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// message is an answer of the Messages API in one piece.
func message(w http.ResponseWriter, usage string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_1")
	_, _ = fmt.Fprintf(w, `{"type":"message","model":"claude-sonnet-5-5","content":[],"usage":%s}`, usage)
}

func anthropicEvents(input, output int) []string {
	return []string{
		fmt.Sprintf(`event: message_start`+"\n"+`data: {"type":"message_start","message":{"model":"claude-sonnet-4-5-20250929","usage":{"input_tokens":%d,"output_tokens":1,"cache_read_input_tokens":100,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}}`, input),
		`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, this is it."}}`,
		fmt.Sprintf(`event: message_delta`+"\n"+`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, output),
		`event: message_stop` + "\n" + `data: {"type":"message_stop"}`,
	}
}

func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range events {
		_, _ = io.WriteString(w, e+"\n\n")
	}
}

const ask1 = `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[]}`

// TestStreamIsNotBuffered: the client has the first event before the server sends the second.
func TestStreamIsNotBuffered(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		ev := anthropicEvents(5, 7)
		sse(w, ev[0])
		http.NewResponseController(w).Flush()
		select {
		case <-first:
			sse(w, ev[1:]...)
		case <-r.Context().Done():
		}
	}, nil)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", b.env["ANTHROPIC_BASE_URL"]+"/v1/messages?beta=true", strings.NewReader(ask1))
	req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if s, err := in.ReadString('\n'); err != nil || s != "event: message_start\n" {
		t.Fatalf("%q, %v", s, err)
	}
	close(first)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), "message_stop") {
		t.Fatalf("%v in %q", err, rest)
	}
	// It is counted before the client has the end.
	b.wants(workorder.Usage{InputTokens: 5, OutputTokens: 7, CacheReadTokens: 100, CacheWriteTokens: 30}, 1,
		(5*3+7*15+100*.3+10*3.75+20*6)/1e6)
	if got := b.seen[0]; got.URL.Path != "/prefix/v1/messages" || got.URL.RawQuery != "beta=true" || got.Header.Get("X-Api-Key") != realAnthropic || b.bodies[0] != ask1 {
		t.Errorf("the server got %s %v %q", got.URL, got.Header, b.bodies[0])
	}
}

func TestShapes(t *testing.T) {
	const chat = `{"model":"gpt-5-mini","stream":true,"messages":[{"b":2,"a":1}]}`
	for name, c := range map[string]struct {
		path, body string
		kind       string // of the answer
		answer     string
		want       workorder.Usage
		usd        float64
	}{
		"message": {
			"/anthropic/messages", ask1, "application/json",
			`{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":30,"cache_creation_input_tokens":40,"server_tool_use":{"web_search_requests":2}}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20, CacheReadTokens: 30, CacheWriteTokens: 40},
			(10*4+20*20+30*.2+40*5)/1e6 + .02,
		},
		"fast message": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"speed":"fast"}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20},
			2 * (10*4 + 20*20) / 1e6,
		},
		"message with a tool that nobody counts": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":10,"output_tokens":20,"server_tool_use":{"robots":1}}}`,
			workorder.Usage{InputTokens: 10, OutputTokens: 20},
			-1,
		},
		"compacted": {
			"/anthropic/v1/messages", ask1, "application/json",
			`{"type":"message","model":"claude-sonnet-5-5","usage":{"input_tokens":10,"output_tokens":20,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":5},{"type":"message","input_tokens":10,"output_tokens":20}]}}`,
			workorder.Usage{InputTokens: 110, OutputTokens: 25},
			(110*2 + 25*10) / 1e6,
		},
		"chat": {
			"/openai/v1/chat/completions", `{"model":"gpt-5-mini","messages":[]}`, "application/json; charset=utf-8",
			`{"object":"chat.completion","model":"gpt-5-mini-2025-08-07","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":5}}}`,
			workorder.Usage{InputTokens: 40, OutputTokens: 20, CacheReadTokens: 60},
			(40*.25 + 20*2 + 60*.025) / 1e6,
		},
		"chat stream": {
			"/openai/v1/chat/completions", chat, "text/event-stream",
			"data: {\"model\":\"gpt-5-mini\",\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\r\n\r\ndata: {\"model\":\"gpt-5-mini\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20}}\r\n\r\ndata: [DONE]\r\n\r\n",
			workorder.Usage{InputTokens: 100, OutputTokens: 20},
			(100*.25 + 20*2) / 1e6,
		},
		"data on several lines": {
			"/openai/v1/chat/completions", chat, "text/event-stream",
			"data: {\"model\":\"gpt-5-mini\",\r\ndata: \"usage\":{\"prompt_tokens\":100,\r\ndata: \"completion_tokens\":20}}\r\n\r\n",
			workorder.Usage{InputTokens: 100, OutputTokens: 20},
			(100*.25 + 20*2) / 1e6,
		},
		"completion": {
			"/openai/completions", `{"model":"gpt-5-mini"}`, "application/json", `{"model":"gpt-5-mini","usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			workorder.Usage{InputTokens: 1, OutputTokens: 2},
			(.25 + 4) / 1e6,
		},
		"embeddings": {
			"/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":"x"}`, "application/json",
			`{"object":"list","data":[],"model":"text-embedding-3-small","usage":{"prompt_tokens":50,"total_tokens":50}}`,
			workorder.Usage{InputTokens: 50},
			50 * .02 / 1e6,
		},
		"response": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol"}`, "application/json",
			`{"object":"response","model":"gpt-6.1-sol-2026-09-29","service_tier":"default","output":[{"type":"web_search_call"}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":50,"cache_write_tokens":20},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":4}}}`,
			workorder.Usage{InputTokens: 30, OutputTokens: 10, CacheReadTokens: 50, CacheWriteTokens: 20},
			(30*2+10*10+50*.1+20*2.5)/1e6 + .01,
		},
		"response stream": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol","stream":true}`, "text/event-stream",
			"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-6.1-sol\",\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n" +
				"event: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"response\":{\"model\":\"gpt-6.1-sol\",\"service_tier\":\"flex\",\"usage\":{\"input_tokens\":300000,\"output_tokens\":10}}}\n\n",
			workorder.Usage{InputTokens: 300000, OutputTokens: 10},
			.5 * (300000*4 + 10*15) / 1e6,
		},
		"response with a tool that nobody counts": {
			"/openai/v1/responses", `{"model":"gpt-6.1-sol"}`, "application/json",
			`{"model":"gpt-6.1-sol","output":[{"type":"code_interpreter_call"}],"usage":{"input_tokens":1,"output_tokens":1}}`,
			workorder.Usage{InputTokens: 1, OutputTokens: 1},
			-1,
		},
		"unknown model": {
			"/openai/v1/chat/completions", `{"model":"mystery"}`, "application/json", `{"model":"mystery","usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			workorder.Usage{InputTokens: 3, OutputTokens: 4},
			-1,
		},
		"own price": {
			"/openai/v1/chat/completions", `{"model":"mine"}`, "application/json", `{"model":"gpt-5","usage":{"prompt_tokens":3,"completion_tokens":4}}`,
			workorder.Usage{InputTokens: 3, OutputTokens: 4},
			0,
		},
		"error with the status of a success": {
			"/anthropic/v1/messages", ask1, "text/event-stream", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", workorder.Usage{}, 0,
		},
		"error in the middle": {
			"/anthropic/v1/messages", ask1, "text/event-stream", strings.Join(anthropicEvents(5, 0)[:2], "\n\n") + "\n\nevent: error\ndata: {\"type\":\"error\"}\n\n",
			workorder.Usage{InputTokens: 5, OutputTokens: 6, CacheReadTokens: 100, CacheWriteTokens: 30},
			(5*3 + 6*15 + 100*.3 + 10*3.75 + 20*6) / 1e6,
		},
		"failed response": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "text/event-stream", "data: {\"type\":\"response.failed\",\"response\":{\"model\":\"gpt-5\",\"usage\":null}}\n\n", workorder.Usage{}, 0,
		},
		"no usage":   {"/openai/v1/chat/completions", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5"}`, workorder.Usage{}, -1},
		"wrong type": {"/anthropic/v1/messages", ask1, "text/html", `<html>`, workorder.Usage{}, -1},
		"negative": {
			"/anthropic/v1/messages", ask1, "application/json", `{"type":"message","model":"claude-opus-5-5","usage":{"input_tokens":-10,"output_tokens":20}}`, workorder.Usage{}, -1,
		},
		"absurd": {
			"/openai/v1/chat/completions", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"prompt_tokens":3,"completion_tokens":9223372036854775807}}`, workorder.Usage{}, -1,
		},
		"more cached than there is": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"input_tokens":3,"output_tokens":1,"input_tokens_details":{"cached_tokens":4}}}`, workorder.Usage{}, -1,
		},
		"text as numbers": {
			"/openai/v1/responses", `{"model":"gpt-5"}`, "application/json", `{"model":"gpt-5","usage":{"input_tokens":"3"}}`, workorder.Usage{}, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.answer)
			}, func(c *ModelsConfig) { c.Gateway.Prices = map[string]workorder.ModelPrice{"mine": {}} })
			status, got, _ := b.post(c.path, c.body)
			if status != 200 || got != c.answer {
				t.Fatalf("%d %s", status, got)
			}
			b.wants(c.want, 1, c.usd)
			b.Stop()
			l := b.lines()[0]
			if l.Input != c.want.InputTokens || l.Output != c.want.OutputTokens || (l.CostUSD == nil) != (c.usd < 0) || l.Status != 200 {
				t.Errorf("audit %+v", l)
			}
		})
	}
}

// TestUsageIsAskedFor: a stream of chat completions has the usage only when it is asked for.
func TestUsageIsAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { sse(w) }, nil)
	for body, want := range map[string]string{
		`{"stream":true,"model":"m","messages":[{"b":1.0,"a":"\u0041"}]}`: `{"stream":true,"model":"m","messages":[{"b":1.0,"a":"\u0041"}],"stream_options":{"include_usage":true}}`,
		`{"stream_options":{"include_usage":false,"x":1},"stream":true}`:  `{"stream_options":{"include_usage":true,"x":1},"stream":true}`,
		`{"stream_options":null,"stream":true}`:                           `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream_options":{"include_usage":true},"stream":true} `:        `{"stream_options":{"include_usage":true},"stream":true} `,
		`{"stream":false}`: `{"stream":false}`,
	} {
		b.post("/openai/v1/chat/completions", body)
		if got := b.bodies[len(b.bodies)-1]; got != want {
			t.Errorf("%s became %s", body, got)
		}
	}
}

// TestAbort: a client that goes away ends the call of the model, and what it used is counted.
func TestAbort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send []string
		path string
		body string
		want func(u workorder.Usage) bool
	}{
		"in the middle": {
			anthropicEvents(500, 9)[:2], "/anthropic/v1/messages", ask1,
			func(u workorder.Usage) bool { return u.InputTokens == 500 && u.OutputTokens == 6 && u.CostUSD != nil },
		},
		"before usage": {
			[]string{`data: {"model":"gpt-5","choices":[{"delta":{"content":"0123456789"}}]}`},
			"/openai/v1/chat/completions",
			`{"model":"gpt-5","stream":true,"messages":["` + strings.Repeat("x", 3000) + `"]}`,
			func(u workorder.Usage) bool { return u.InputTokens > 1000 && u.OutputTokens > 3 && u.CostUSD != nil },
		},
		"of a conversation that the server remembers": {
			[]string{`data: {"type":"response.created","response":{"model":"gpt-5"}}`},
			"/openai/v1/responses",
			`{"model":"gpt-5","stream":true,"previous_response_id":"r1"}`,
			func(u workorder.Usage) bool { return u.CostUSD == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				sse(w, c.send...)
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(gone)
			}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+b.addr+c.path, strings.NewReader(c.body))
			req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
			if strings.HasPrefix(c.path, "/openai") {
				req.Header.Set("X-Api-Key", b.env["OPENAI_API_KEY"])
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadAtLeast(resp.Body, make([]byte, 1000), 10); err != nil {
				t.Fatal(err)
			}
			cancel()
			<-gone
			waitFor(t, "the audit", func() bool { return len(b.lines()) == 1 })
			if u, n := b.Usage(); n != 1 || !c.want(u) {
				t.Errorf("usage %+v, cost %v", u, show(u.CostUSD))
			}
			if !b.lines()[0].Estimate {
				t.Error("the audit does not say that it is estimated")
			}
		})
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// TestParallel: requests at a time are counted exactly.
func TestParallel(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/messages") {
			sse(w, anthropicEvents(5, 7)...)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"gpt-5","usage":{"prompt_tokens":100,"completion_tokens":10}}`)
	}, nil)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			path, body := "/anthropic/v1/messages", ask1
			if i%2 == 0 {
				path, body = "/openai/v1/chat/completions", `{"model":"gpt-5"}`
			}
			if status, got, _ := b.post(path, body); status != 200 {
				t.Errorf("%d %s", status, got)
			}
		})
	}
	all.Wait()
	u, n := b.Usage()
	if n != 40 || u.InputTokens != 20*105 || u.OutputTokens != 20*17 || u.CacheReadTokens != 2000 || u.CostUSD == nil || len(b.lines()) > 40 {
		t.Errorf("%d requests, %+v", n, u)
	}
}

// TestHTTP2: providers are reached over TLS with HTTP/2.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	proto := make(chan string, 1)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto <- r.Proto
		sse(w, anthropicEvents(5, 7)...)
	}))
	up.EnableHTTP2 = true
	up.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the client that does not trust it
	up.StartTLS()
	defer up.Close()
	route := func(c *ModelsConfig) { c.Gateway.Routes[0].BaseURL = up.URL }
	status, body, _ := newBench(t, nil, route).post("/anthropic/v1/messages", ask1)
	if status != 502 || !strings.Contains(body, "certificate") {
		t.Fatalf("a server that nobody vouches for: %d %s", status, body)
	}
	b := newBench(t, nil, route)
	tr, ok := b.client.(*http.Transport)
	trusting, ok2 := up.Client().Transport.(*http.Transport)
	if !ok || !ok2 {
		t.Fatal("not the transport")
	}
	tr.TLSClientConfig = &tls.Config{RootCAs: trusting.TLSClientConfig.RootCAs}
	if status, body, _ = b.post("/anthropic/v1/messages", ask1); status != 200 || <-proto != "HTTP/2.0" {
		t.Errorf("%d %s", status, body)
	}
	if u, _ := b.Usage(); u.OutputTokens != 7 {
		t.Errorf("%+v", u)
	}
}

// BenchmarkLatency compares a request through the gateway with one that goes to the server directly.
func BenchmarkLatency(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sse(w, anthropicEvents(5, 7)...)
	}))
	defer up.Close()
	m, err := NewModels(ModelsConfig{Gateway: workorder.Gateway{Routes: []workorder.ModelRoute{
		{API: workorder.APIAnthropic, BaseURL: up.URL, Keys: []string{"ANTHROPIC_API_KEY"}},
	}}, Secrets: map[string]string{"ANTHROPIC_API_KEY": realAnthropic}, Audit: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	if err := m.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer m.Stop()
	m.SetBudget(new(1e6))
	body := `{"model":"claude-sonnet-4-5","stream":true,"messages":["` + strings.Repeat("x", 90_000) + `"]}` // as Claude Code's
	for _, way := range []struct{ name, base string }{{"direct", up.URL}, {"gateway", m.Env()["ANTHROPIC_BASE_URL"]}} {
		b.Run(way.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				req, _ := http.NewRequestWithContext(b.Context(), "POST", way.base+"/v1/messages", strings.NewReader(body))
				req.Header.Set("X-Api-Key", m.Env()["ANTHROPIC_API_KEY"])
				began := time.Now()
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
		})
	}
}
