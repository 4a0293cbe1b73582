package gateway

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// echoes are the ways in which a server repeats the header that has the key.
func echoes(t *testing.T, key string) map[string]string {
	t.Helper()
	escaped, err := json.Marshal("Bearer \"" + key + "\"")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"raw": key, "json": string(escaped[1 : len(escaped)-1]), "base64": base64.StdEncoding.EncodeToString([]byte("x-api-key: " + key)),
		"base64url": base64.URLEncoding.EncodeToString([]byte("{" + key + "}")), "twice": key + key,
	}
}

// leaks reports whether a text has the key in it, in any of the ways.
func leaks(text, key string) bool {
	for range 2 { // base64 of base64 is not looked for
		if strings.Contains(text, key) || strings.Contains(text, key[:len(key)-1]) {
			return true
		}
		var plain strings.Builder
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\": ,{}\n", r) }) {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
				if b, err := enc.DecodeString(word); err == nil {
					plain.Write(b)
				}
			}
		}
		text = plain.String()
	}
	return false
}

// TestEchoOfTheKey: whatever an answer repeats of the key, the client does not get it: in streams and in one piece, cut
// at every byte, compressed, in errors, in headers and trailers, metered or not.
func TestEchoOfTheKey(t *testing.T) {
	t.Parallel()
	type kind struct {
		path, method, contentType, before, after string
		status                                   int
		gzip                                     bool
	}
	const usage = `"usage":{"input_tokens":5,"output_tokens":7}`
	whole := kind{"/anthropic/v1/messages", "POST", "application/json", `{"type":"message","model":"claude-sonnet-4-5",` + usage + `,"echo":"`, `","end":1}`, 200, false}
	stream := kind{
		whole.path, "POST", "text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-4-5\"," + usage + ",\"echo\":\"",
		"\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", 200, false,
	}
	packed, packedStream := whole, stream
	packed.gzip, packedStream.gzip = true, true
	for name, k := range map[string]kind{
		"whole": whole, "stream": stream, "gzip": packed, "gzip stream": packedStream,
		"models":          {"/anthropic/v1/models", "GET", "application/json", `{"data":"`, `","end":1}`, 200, false},
		"no type":         {whole.path, "POST", "text/plain", "it is ", " end", 200, false},
		"error":           {whole.path, "POST", "application/json", `{"error":"`, `","end":1}`, 401, false},
		"error of models": {"/openai/v1/models", "GET", "text/html", `<p>`, `,"end":1`, 500, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := realAnthropic
			if strings.HasPrefix(k.path, "/openai") {
				key = realOpenAI
			}
			var echo string
			cut := -1 // -1: not
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				h := w.Header()
				h.Set("Content-Type", k.contentType)
				h.Set("X-Echo", echo)
				h.Set("Trailer", "X-Last")
				out, flush := io.Writer(w), http.NewResponseController(w).Flush
				if k.gzip {
					h.Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					defer z.Close()
					out = z
					flush = func() error { _ = z.Flush(); return http.NewResponseController(w).Flush() }
				}
				w.WriteHeader(k.status)
				body := k.before + echo + k.after
				if cut < 0 {
					_, _ = io.WriteString(out, body)
				} else {
					at := len(k.before) + cut
					_, _ = io.WriteString(out, body[:at])
					_ = flush()
					_, _ = io.WriteString(out, body[at:])
				}
				h.Set("X-Last", echo)
			}, nil)
			for way, text := range echoes(t, key) {
				echo = text
				for cut = -1; cut <= len(text); cut++ {
					status, got, h := b.do(k.method, k.path, ask1, map[string]string{"Accept-Encoding": "identity"})
					if status != k.status || leaks(got+fmt.Sprint(h), key) || !strings.Contains(got, "[redacted:") || !strings.Contains(got, "end") && !strings.Contains(got, "message_stop") {
						t.Fatalf("%s, cut at %d: %d %q %v", way, cut, status, got, h)
					}
				}
			}
			if u, _ := b.Usage(); k.status == 200 && k.contentType != "text/plain" && k.method == "POST" && (u.CostUSD == nil || u.OutputTokens == 0) {
				t.Errorf("not counted: %+v", u)
			}
		})
	}
}

// TestEveryEventAtOnce: the masker holds no event back, also not one that ends in the beginning of a key.
func TestEveryEventAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	tails := []string{"", "s", "sk", "sk-ant-real-012345678", "sandbox"}
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, tail := range tails {
			_, _ = io.WriteString(w, "data: "+tail+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "data: the end is not cut: sk-ant-r")
	}, nil)
	req, err := http.NewRequestWithContext(t.Context(), "POST", b.env["ANTHROPIC_BASE_URL"]+"/v1/messages", strings.NewReader(ask1))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, tail := range tails {
		for _, want := range []string{"data: " + tail + "\n", "\n"} {
			if got, err := in.ReadString('\n'); err != nil || got != want {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "data: the end is not cut: sk-ant-r" {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestBrokenEcho: of an answer that breaks off within the key, what came of it does not pass; nor where an error is
// too long to pass whole.
func TestBrokenEcho(t *testing.T) {
	t.Parallel()
	part := realAnthropic[:len(realAnthropic)-1]
	for name, serve := range map[string]http.HandlerFunc{
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "data: "+part)
		},
		"long error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, strings.Repeat("x", maxErrorBody-len(part))+realAnthropic)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, serve, nil)
			if status, got, _ := b.post("/anthropic/v1/messages", ask1); strings.Contains(got, part[:8]) || got == "" {
				t.Errorf("%d, %d bytes, %.100q", status, len(got), got[max(0, len(got)-100):])
			}
		})
	}
}

// TestUnreadableEncoding: an answer that can be neither counted nor masked does not pass.
func TestUnreadableEncoding(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"br", "zstd", "gzip, br"} {
		for _, status := range []int{200, 400} {
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", encoding)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "secret")
			}, nil)
			got, body, h := b.post("/anthropic/v1/messages", ask1)
			if got != 502 || strings.Contains(body, "secret") || !strings.Contains(body, encoding) || h.Get("Content-Encoding") != "" {
				t.Errorf("%s: %d %s %v", encoding, got, body, h)
			}
			if u, _ := b.Usage(); (*u.CostUSD > 0) != (status == 200) {
				t.Errorf("%s with status %d costs %v", encoding, status, *u.CostUSD)
			}
		}
	}
}
