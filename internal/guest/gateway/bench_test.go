package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
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

// trust makes the gateway believe the certificate of a server.
func (b *bench) trust(up *httptest.Server) {
	b.t.Helper()
	tr, ok := b.client.(*http.Transport)
	trusting, ok2 := up.Client().Transport.(*http.Transport)
	if !ok || !ok2 {
		b.t.Fatal("not the transport")
	}
	tr.TLSClientConfig = &tls.Config{RootCAs: trusting.TLSClientConfig.RootCAs}
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

// refused wants the nth line of the audit, its last, to be a refusal of this kind.
func (b *bench) refused(n int, kind string) {
	b.t.Helper()
	waitFor(b.t, "the audit", func() bool { return len(b.lines()) == n })
	if l := b.lines()[n-1]; l.Refused != kind {
		b.t.Errorf("it is refused as %q, want %q", l.Refused, kind)
	}
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
	got.CostUSD, got.CostSource, got.ReservedUSD, got.Estimated = nil, "", 0, false
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

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// anyRoom is more than a test needs.
func anyRoom() *memoryShare { return &memoryShare{room: newMemoryLimit(1 << 40)} }

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
	policed, err := NewModels(ModelsConfig{Gateway: workorder.Gateway{Routes: []workorder.ModelRoute{
		{API: workorder.APIAnthropic, BaseURL: up.URL},
	}}, Network: workorder.NetworkPolicy{Mode: workorder.NetworkRestricted}, Audit: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	if err := policed.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer policed.Stop()
	for _, way := range []struct{ name, base string }{{"direct", up.URL}, {"gateway", m.Env()["ANTHROPIC_BASE_URL"]}, {"restricted", policed.Env()["ANTHROPIC_BASE_URL"]}} {
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
