package gateway

import (
	"bufio"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

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
	b := newBench(t, nil, route)
	status, body, _ := b.post("/anthropic/v1/messages", ask1)
	if status != 502 || len(proto) != 0 {
		t.Fatalf("an unverified server: %d %s", status, body)
	}
	b.refused(1, "unreachable")
	b = newBench(t, nil, route)
	b.trust(up)
	if status, body, _ = b.post("/anthropic/v1/messages", ask1); status != 200 || <-proto != "HTTP/2.0" {
		t.Errorf("%d %s", status, body)
	}
	if u, _ := b.Usage(); u.OutputTokens != 7 {
		t.Errorf("%+v", u)
	}
}
