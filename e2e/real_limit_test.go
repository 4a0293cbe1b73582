//go:build e2e && nightly

package e2e

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Real agents at a provider that refuses their calls until an hour from now: one gives up by itself, the other would wait
// without a word. Both are parked until then.
func TestRealAgentsAtALimit(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", until.UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit."}}`))
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	for name, harness := range map[string]string{
		"claude-code": "{name: claude-code, model: " + claudeModel + "}",
		"opencode":    "{name: opencode, model: openai/" + openaiModel + "}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "THE_MODEL_KEY="+claudeKey)
			c := u.run("", "create", "--repo", u.repo(map[string]string{"f": "1"}), "--task", "work", "-p", u.project(`
name: limit
harness: `+harness+`
secrets:
  ANTHROPIC_API_KEY: env://THE_MODEL_KEY
  OPENAI_API_KEY: env://THE_MODEL_KEY
gateway:
  anthropic: {base_url: "http://`+ln.Addr().String()+`"}
  openai: {base_url: "http://`+ln.Addr().String()+`"}
timeout_minutes: 10
`))
			r := u.plainResult(c.task(t))
			if r.Status != workorder.StatusParked || r.ResumeAt == nil || r.ResumeAt.Sub(until).Abs() > 2*time.Second {
				t.Errorf("exit code %d, %s by %s: %s; resumes at %v, the limit ends at %v", c.code, r.Status, r.EndedBy, r.Reasons, r.ResumeAt, until)
			}
			t.Logf("%s after %d ms", r.Reasons, r.DurationMS)
		})
	}
}
