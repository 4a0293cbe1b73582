package gateway

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const anyUsage = `{"input_tokens":1,"output_tokens":1}`

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
	key, oauth, openai := b.env["ANTHROPIC_API_KEY"], b.env["CLAUDE_CODE_OAUTH_TOKEN"], b.env["OPENAI_API_KEY"]
	for _, v := range []string{key, oauth, openai} {
		if !strings.HasPrefix(v, "sandbox-agent-placeholder-") || len(v) < 60 {
			t.Errorf("placeholder %q", v)
		}
	}
	if again, _ := NewModels(ModelsConfig{Gateway: workorder.Gateway{Routes: []workorder.ModelRoute{
		{API: workorder.APIAnthropic, BaseURL: "http://x", Keys: []string{"K"}},
	}}, Secrets: map[string]string{"K": "k"}}); again.Env()["K"] == "" || again.Env()["K"] == key || again.Env()["ANTHROPIC_BASE_URL"] != "" {
		t.Errorf("before Start: %v", again.Env())
	} else if env := again.Env(); env["ANTHROPIC_API_KEY"] != env["K"] {
		t.Errorf("programs look for the usual name: %v", env)
	}
	const path = "/anthropic/v1/messages"
	for name, c := range map[string]struct {
		path   string
		header map[string]string
		want   map[string]string // that the server gets; nil: 401
	}{
		"api key":       {path, map[string]string{"X-Api-Key": key}, map[string]string{"X-Api-Key": realAnthropic}},
		"bearer":        {path, map[string]string{"X-Api-Key": "", "Authorization": "bearer " + oauth}, map[string]string{"Authorization": "Bearer " + realOAuth}},
		"both":          {path, map[string]string{"X-Api-Key": key, "Authorization": "Bearer " + oauth}, map[string]string{"X-Api-Key": realAnthropic, "Authorization": "Bearer " + realOAuth}},
		"azure":         {path, map[string]string{"X-Api-Key": "", "Api-Key": key}, map[string]string{"Api-Key": realAnthropic}},
		"google":        {path, map[string]string{"X-Api-Key": "", "X-Goog-Api-Key": key}, map[string]string{"X-Goog-Api-Key": realAnthropic}},
		"one's own too": {path, map[string]string{"Authorization": "Bearer mine", "Cookie": "a=b", "X-Litellm-Key": "mine", "Proxy-Authorization": "Basic eA=="}, map[string]string{"X-Api-Key": realAnthropic}},
		"none":          {path, map[string]string{"X-Api-Key": ""}, nil},
		"one's own":     {path, map[string]string{"X-Api-Key": "sk-mine"}, nil},
		"other API's":   {path, map[string]string{"X-Api-Key": openai}, nil},
		"basic":         {path, map[string]string{"X-Api-Key": "", "Authorization": "Basic " + key}, nil},
		"part of it":    {path, map[string]string{"X-Api-Key": "x" + key}, nil},
		"in the query":  {path + "?key=" + key, map[string]string{"X-Api-Key": ""}, nil},
		"in a cookie":   {path, map[string]string{"X-Api-Key": "", "Cookie": "key=" + key}, nil},
		"the real one":  {path, map[string]string{"X-Api-Key": realAnthropic}, nil},
	} {
		n := b.requests()
		status, body, _ := b.do("POST", c.path, ask1, c.header)
		if c.want == nil {
			if status != 401 || !strings.Contains(body, `"type":"authentication_error"`) || !strings.Contains(body, "ANTHROPIC_API_KEY") || b.requests() != n {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		if status != 200 || b.requests() != n+1 {
			t.Fatalf("%s: %d %s", name, status, body)
		}
		got := map[string]string{}
		for k, v := range b.seen[n].Header {
			if secretive.MatchString(k) || k == "Cookie" {
				got[k] = strings.Join(v, "|")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: the server got %v, want %v", name, got, c.want)
		}
		if strings.Contains(fmt.Sprint(b.seen[n].Header, b.seen[n].URL), "placeholder") {
			t.Errorf("%s: the placeholder went out", name)
		}
	}
	twice := "POST " + path + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nX-Api-Key: mine\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
	if got := b.raw(twice); !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "X-Api-Key") || strings.Contains(got, "ANTHROPIC_API_KEY") {
		t.Errorf("a header given twice: %s", got)
	}
}

// TestWithoutKeys: a server that wants no key gets none, and programs have a placeholder all the same.
func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, func(c *ModelsConfig) {
		c.Gateway.Routes[0].Keys, c.Gateway.Routes = nil, c.Gateway.Routes[:1]
	})
	for _, h := range []map[string]string{nil, {"X-Api-Key": ""}, {"X-Api-Key": "", "Authorization": "Bearer x"}} {
		if status, body, _ := b.do("POST", "/anthropic/v1/messages", ask1, h); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		if got := b.seen[len(b.seen)-1].Header; got.Get("X-Api-Key")+got.Get("Authorization") != "" {
			t.Errorf("the server got %v", got)
		}
	}
	if len(b.env) != 2 || b.env["ANTHROPIC_API_KEY"] == "" {
		t.Errorf("environment %v", b.env)
	}
}

func TestOnlyModels(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
	for _, s := range []string{
		"HEAD /anthropic", "GET /anthropic/", "HEAD /anthropic/api/hello", "GET /anthropic/api/hello", "POST /anthropic/messages", "POST /anthropic/v1/messages/count_tokens",
		"GET /anthropic/v1/models", "GET /anthropic/models/claude-x@2025", "POST /openai/v1/chat/completions", "POST /openai/completions", "POST /openai/v1/responses",
		"GET /openai/v1/responses/resp_1", "DELETE /openai/v1/responses/resp_1", "POST /openai/v1/responses/resp_1/cancel", "POST /openai/v1/responses/compact",
		"POST /openai/v1/embeddings", "GET /openai/v1/models", "GET /openai/v1/models/ft:gpt-4",
	} {
		method, path, _ := strings.Cut(s, " ")
		if status, body, _ := b.do(method, path, `{"model":"x"}`, nil); status != 200 {
			t.Errorf("%s: %d %s", s, status, body)
		}
	}
	passed := b.requests()
	for _, s := range []string{
		"POST /anthropic/v1/messages/batches", "GET /anthropic/v1/messages/batches", "POST /anthropic/v1/files", "GET /anthropic/v1/organizations/me", "GET /anthropic/v1/messages",
		"POST /anthropic/v1/complete", "PUT /anthropic/v1/messages", "DELETE /anthropic/v1/models/x", "POST /anthropic/api/hello",
		"POST /openai/v1/batches", "POST /openai/v1/files", "GET /openai/v1/files", "POST /openai/v1/fine_tuning/jobs", "GET /openai/v1/organization/usage", "POST /openai/v1/images/generations",
		"POST /openai/v1/assistants", "POST /openai/v1/conversations", "GET /openai/v1/responses", "GET /openai/", "GET /openai/v1/models/a/b", "POST /openai/v1/audio/speech", "DELETE /openai/v1/models/x",
		"GET /", "POST /v1/messages", "GET /other/v1/models", "POST /anthropic/v1/v1/messages", "POST //anthropic/v1/messages", "POST /anthropic//v1/messages", "POST /anthropic/v1//messages",
		"POST /anthropic/v1/messages/", "POST /anthropic/v1/../v1/messages", "GET /anthropic/v1/models/..", "GET /anthropic/v1/models/%2e%2e", "GET /anthropic/v1/models/a%2fb", "POST /anthropic/v1/messages%2fbatches",
		"POST /anthropic/v1/messages%00", "POST /anthropic/v1/./messages", "POST /anthropic/v1/messages;x", `POST /anthropic/v1\messages`, "POST /Anthropic/v1/messages",
		"GET http://evil.example/anthropic/v1/models", "CONNECT evil.example:443", "POST http://x/anthropic/v1/messages", "OPTIONS *",
	} {
		method, path, _ := strings.Cut(s, " ")
		key := b.env["ANTHROPIC_API_KEY"]
		if strings.HasPrefix(path, "/openai") {
			key = b.env["OPENAI_API_KEY"]
		}
		got := b.raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		if !strings.HasPrefix(got, "404 ") && !strings.HasPrefix(got, "400 ") && s != "OPTIONS *" {
			t.Errorf("%s: %s", s, got)
		}
	}
	if b.requests() != passed {
		t.Errorf("%d of them reached the server", b.requests()-passed)
	}
	if _, body, _ := b.post("/openai/v1/files", "{}"); !strings.Contains(body, `"error":{"code":"no_route"`) || !strings.Contains(body, "POST /openai/v1/files") {
		t.Errorf("OpenAI's shape: %s", body)
	}
	if _, body, _ := b.post("/anthropic/v1/files", "{}"); !strings.Contains(body, `{"error":{"message":"sandbox-agent: POST /anthropic/v1/files`) || !strings.Contains(body, `"not_found_error"},"type":"error"}`) {
		t.Errorf("Anthropic's shape: %s", body)
	}
	if status, _, _ := b.do("GET", "/openai/v1/responses", "", map[string]string{"Upgrade": "websocket", "Connection": "Upgrade"}); status != http.StatusUpgradeRequired {
		t.Errorf("WebSocket: %d", status)
	}
	b.do("GET", "/openai/v1/models?limit=3&key=k&api_key=k&access_token=k", "", nil)
	if q := b.seen[len(b.seen)-1].URL.RawQuery; q != "limit=3" {
		t.Errorf("query %q went out", q)
	}
	b.do("GET", "/anthropic/api/hello", "", nil)
	if h := b.seen[len(b.seen)-1].Header; h.Get("X-Api-Key") != "" {
		t.Error("the key went to /api/hello")
	}
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
	for body, want := range map[string]struct {
		names string
		err   error
	}{
		``: {}, `[]`: {}, `{"a":1} x`: {}, `{"a":`: {}, `null`: {},
		`{"model":"a","model":"b"}`: {err: errTwice}, `{"model":"a","MODEL":"b"}`: {err: errTwice}, `{` + strings.Repeat(`"a":1,`, 600) + `"b":1}`: {err: errTwice},
		`{"background":true}`: {names: "background"}, `{"background":1}`: {names: "background"}, `{"background":"yes"}`: {names: "background"},
	} {
		status, got, _ := b.post("/openai/v1/responses", body)
		if status != 400 || !strings.Contains(got, `"code":"bad_request"`) || !strings.Contains(got, want.names) {
			t.Errorf("%.40s: %d %s", body, status, got)
		}
		if _, err := parseBody([]byte(body)); want.err != nil && !errors.Is(err, want.err) {
			t.Errorf("%.40s: %v", body, err)
		}
	}
	if status, _, _ := b.do("POST", "/openai/v1/responses", `{}`, map[string]string{"Content-Encoding": "gzip"}); status != http.StatusUnsupportedMediaType {
		t.Errorf("compressed: %d", status)
	}
	huge := "POST /openai/v1/responses HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + b.env["OPENAI_API_KEY"] + "\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n"
	if got := b.raw(huge); !strings.HasPrefix(got, "413 ") {
		t.Errorf("huge: %s", got)
	}
	if b.requests() != 0 {
		t.Errorf("%d reached the server", b.requests())
	}
}

// TestErrorsPass: what the server says of a failure reaches the client, without the key.
func TestErrorsPass(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Retry-After", "17")
		h.Set("Request-Id", "req_7")
		h.Set("X-Echo", "key "+r.Header.Get("X-Api-Key"))
		h.Set("Set-Cookie", "a=b")
		w.WriteHeader(529)
		_, _ = fmt.Fprintf(w, `{"error":{"type":"overloaded_error","message":"your key %s"}}`, r.Header.Get("X-Api-Key"))
	}, nil)
	status, body, h := b.post("/anthropic/v1/messages", ask1)
	if status != 529 || !strings.Contains(body, "overloaded_error") || h.Get("Retry-After") != "17" || h.Get("Request-Id") != "req_7" || h.Get("Set-Cookie") != "" {
		t.Errorf("%d %v %s", status, h, body)
	}
	if strings.Contains(body+fmt.Sprint(h), realAnthropic) {
		t.Errorf("the key came back: %s %v", body, h)
	}
	if b.requests() != 1 {
		t.Errorf("%d requests: the gateway retries", b.requests())
	}
	b.wants(workorder.Usage{}, 1, 0)
	b.Stop()
	if l := b.lines()[0]; l.Status != 529 || l.Upstream != "req_7" {
		t.Errorf("audit %+v", l)
	}
}

// TestHostileServer: whatever the server is, the client gets an error or the bytes, and nothing is counted wrongly.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	hijack := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, answer)
		}
	}
	for name, c := range map[string]struct {
		serve  http.HandlerFunc
		status int // -1: the connection breaks
		usd    float64
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, 502, 0},
		"not HTTP":     {hijack("hello\r\n\r\n"), 502, -2},
		"huge header":  {hijack("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"), 502, -2},
		"broken JSON":  {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"), 502, -2},
		"broken SSE":   {hijack("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 500\r\n\r\ndata: {"), -1, -2},
		"wrong gzip":   {hijack("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"), 502, -2},
		"switches":     {hijack("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), 502, 0},
		"endless line": {func(w http.ResponseWriter, _ *http.Request) { sse(w, "data: "+strings.Repeat("x", maxLine+10)) }, 200, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.serve, nil)
			status, body, _ := b.do("POST", "/anthropic/v1/messages", ask1, map[string]string{"Accept-Encoding": "identity"})
			if status != c.status {
				t.Errorf("%d %.300s", status, body)
			}
			if strings.Contains(body, "evil.example/") {
				t.Errorf("redirect: %s", body)
			}
			u, _ := b.Usage()
			if (c.usd == -1) != (u.CostUSD == nil) || c.usd == -2 && *u.CostUSD+u.ReservedUSD <= 0 {
				t.Errorf("cost %v", show(u.CostUSD))
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		t.Parallel()
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close()
		b := newBench(t, nil, func(c *ModelsConfig) { c.Gateway.Routes[0].BaseURL = "http://" + addr })
		status, body, _ := b.post("/anthropic/v1/messages", ask1)
		if status != 502 || !strings.Contains(body, addr) {
			t.Errorf("%d %s", status, body)
		}
		b.refused(1, "unreachable")
		b.wants(workorder.Usage{}, 1, 0)
	})
}

// TestAuditIsClean: a line is short and has no control characters, whatever the client sends.
func TestAuditIsClean(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
	b.do("POST", "/anthropic/v1/messages", `{"model":"`+strings.Repeat(`\u001b[31m\n`, 1000)+`"}`, nil)
	b.raw("GET /" + strings.Repeat("x", 10000) + "\x7f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	b.Stop()
	sc := bufio.NewScanner(strings.NewReader(b.audit.String()))
	for n := 0; sc.Scan(); n++ {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil || len(sc.Bytes()) > 1000 || strings.ContainsAny(l.Model+l.Path, "\x1b\n\x7f") {
			t.Errorf("%v: %q", err, sc.Text())
		}
	}
}
