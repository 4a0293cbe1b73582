package gateway

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestHeaders: what tells of a retry passes, credentials do not, and only the header of the key has the key.
func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
	passes := map[string]string{
		"Idempotency-Key": "try-1", "X-Idempotency-Key": "try-2", "X-Stainless-Retry-Count": "2", "X-Stainless-Helper-Token": "x", "Anthropic-Beta": "a,b", "Openai-Organization": "o",
		"User-Agent": "claude-cli/2", "X-Client-Request-Id": "r", "Traceparent": "00-1",
	}
	dropped := map[string]string{
		"X-Litellm-Key": "mine", "Cookie": "a=b", "X-Amz-Security-Token": "t", "X-Signature": "s", "Proxy-Authorization": "Basic eA==", "X-Auth": "x", "Password": "x", "Client-Secret": "x",
		"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "X-Real-Ip": "1.2.3.4",
		// Values that go nowhere, whatever they are called.
		"X-Copy": b.env["ANTHROPIC_API_KEY"], "X-Copy-Of-Real": "is " + realAnthropic, "X-Stainless-Lang": realOpenAI, "X-Other": "x" + b.env["OPENAI_API_KEY"],
	}
	header := map[string]string{}
	for _, m := range []map[string]string{passes, dropped} {
		maps.Copy(header, m)
	}
	if status, body, _ := b.do("POST", "/anthropic/v1/messages", ask1, header); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	got := b.seen[0].Header
	for k, v := range passes {
		if got.Get(k) != v {
			t.Errorf("%s: the server got %q, want %q", k, got.Get(k), v)
		}
	}
	for k := range dropped {
		if got.Get(k) != "" {
			t.Errorf("%s: the server got %q", k, got.Get(k))
		}
	}
	for k, values := range got {
		for _, v := range append(slices.Clone(values), k) {
			if k != "X-Api-Key" && b.mask.Load().String(v) != v || strings.Contains(v, placeholderPrefix) {
				t.Errorf("%s: %q", k, v)
			}
		}
	}
}

// TestOnlyTheClientRetries: a key of idempotency is no leave for Go's transport to send a request again.
func TestOnlyTheClientRetries(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var got atomic.Int64
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // it answers one request on a connection, and hangs up after the second
				defer conn.Close()
				in := bufio.NewReader(conn)
				for n := range 2 {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					got.Add(1)
					const answer = `{"type":"message","model":"claude-sonnet-4-5","usage":{"input_tokens":1,"output_tokens":1}}`
					if n == 0 {
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 91\r\n\r\n"+answer)
					}
				}
			}()
		}
	}()
	b := newBench(t, nil, func(c *ModelsConfig) { c.Gateway.Routes[0].BaseURL = "http://" + ln.Addr().String() })
	for i, want := range []int{200, 502} {
		status, body, _ := b.do("POST", "/anthropic/v1/messages", ask1, map[string]string{"Idempotency-Key": "k"})
		if status != want || got.Load() != int64(i+1) {
			t.Errorf("%d %s; %d requests at the server", status, body, got.Load())
		}
	}
}

// A server that takes another method or path from a header would do what was not judged.
func TestNoOverride(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-Stainless-Lang": {"go"}, "X-Methodology": {"kept"}, "Anthropic-Beta": {"kept"}}
	want := len(h) + 1 // and Accept-Encoding
	for _, name := range []string{
		"X-HTTP-Method-Override", "x-http-method", "X-METHOD-OVERRIDE", "X-Method", "X_HTTP_Method_Override", "X-Original-URL", "X-Rewrite-URL",
		"X-Original-Method", "X-Original-URI", "X-Http-Path-Override", "X-Host", "X-Http-Host-Override", "X-Forwarded-Method",
	} {
		h.Set(name, "DELETE")
	}
	if got := forwarded(h, func(string) bool { return false }); len(got) != want {
		t.Errorf("%v", got)
	}
}

// A rotated key is that of the next request, and its client notices nothing; neither key is in an answer.
func TestSetKeys(t *testing.T) {
	t.Parallel()
	const rotated = "sk-ant-rotated-0123456789"
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"keys":["`+realAnthropic+`","`+rotated+`"]}`)
	}, nil)
	placeholder := b.env["ANTHROPIC_API_KEY"]
	for _, bad := range []string{"", "a\nb"} {
		if err := b.SetKeys(map[string]string{"ANTHROPIC_API_KEY": bad}); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
	if err := b.SetKeys(map[string]string{"ANTHROPIC_API_KEY": rotated, "OTHER": "x"}); err != nil {
		t.Fatal(err)
	}
	status, body, _ := b.do("POST", "/anthropic/v1/messages", ask1, map[string]string{"X-Api-Key": placeholder})
	if status != 200 || strings.Contains(body, realAnthropic) || strings.Contains(body, rotated) {
		t.Errorf("%d %s", status, body)
	}
	if got := b.seen[len(b.seen)-1].Header.Get("X-Api-Key"); got != rotated {
		t.Errorf("the server got %q", got)
	}
}
