//go:build e2e

package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// realClaude takes the Claude Code program out of the box's image.
func realClaude(t *testing.T) string {
	t.Helper()
	output := func(argv ...string) string {
		out, err := proc.Output(t.Context(), proc.Spec{Argv: argv})
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(out))
		if len(fields) == 0 {
			return ""
		}
		return fields[len(fields)-1]
	}
	id := output("docker", "create", output("../../../bin/sandbox-agent", "image", "build"))
	path := filepath.Join(t.TempDir(), "claude")
	defer output("docker", "rm", "-v", id)
	output("docker", "cp", id+":/usr/local/bin/claude", path)
	return path
}

// TestRealClaudeThroughGateway: the CLI works with a placeholder, its own account of the cost is the wire's, and
// it ends soon when the budget is spent.
func TestRealClaudeThroughGateway(t *testing.T) {
	cli := realClaude(t)
	for name, budget := range map[string]*float64{"no budget": nil, "budget": new(0.001)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, scripted, nil)
			b.SetBudget(budget)
			home := t.TempDir()
			env := []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NO_PROXY=*", "IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				"ANTHROPIC_API_KEY=" + b.env["ANTHROPIC_API_KEY"], "ANTHROPIC_BASE_URL=" + b.env["ANTHROPIC_BASE_URL"],
			}
			out, err := proc.Output(t.Context(), proc.Spec{
				Argv:  []string{cli, "-p", "--output-format", "json", "--dangerously-skip-permissions", "--model", "claude-opus-5-5"},
				Stdin: strings.NewReader("do it"), Env: env, Dir: home,
			})
			var result struct {
				IsError bool    `json:"is_error"`
				Result  string  `json:"result"`
				Cost    float64 `json:"total_cost_usd"`
			}
			if jerr := json.Unmarshal(out, &result); jerr != nil {
				t.Fatalf("%v, %v in %s", err, jerr, out)
			}
			u, n := b.Usage()
			if u.CostUSD == nil || *u.CostUSD-result.Cost > 1e-9 || result.Cost-*u.CostUSD > 1e-9 || n == 0 || u.CostSource != workorder.CostByGateway {
				t.Errorf("the wire has %v in %d requests, the CLI %v", show(u.CostUSD), n, result.Cost)
			}
			if budget == nil && (err != nil || result.IsError || result.Result != "Finished." || !exists(home+"/ran")) {
				t.Errorf("%v %+v", err, result)
			}
			if budget != nil && (err == nil || !result.IsError || !strings.Contains(result.Result, "max_budget_usd") || !closed(b.OverBudget()) || b.requests() != 1) {
				t.Errorf("%v %+v, %d requests reached the server", err, result, b.requests())
			}
			for _, r := range b.seen {
				if !strings.HasSuffix(r.URL.Path, "/api/hello") && r.Header.Get("X-Api-Key") != realAnthropic {
					t.Errorf("%s without the key", r.URL)
				}
			}
		})
	}
}

// TestRealClaudeWithoutNetwork: with network none an ordinary session of the CLI passes. Its tool WebSearch, which is a
// search of the provider in a request of its own, is refused, and the session goes on.
func TestRealClaudeWithoutNetwork(t *testing.T) {
	cli := realClaude(t)
	search := strings.NewReplacer(`"name":"Bash"`, `"name":"WebSearch"`, `{\"command\":\"touch ran\",\"description\":\"x\"}`, `{\"query\":\"a secret\"}`)
	for name, serve := range map[string]http.HandlerFunc{
		"ordinary": scripted,
		"search": func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			scripted(rec, r)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			_, _ = search.WriteString(w, rec.Body.String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, serve, func(c *ModelsConfig) { c.Network.Mode = workorder.NetworkNone })
			home := t.TempDir()
			out, err := proc.Output(t.Context(), proc.Spec{
				Argv: []string{cli, "-p", "--output-format", "json", "--dangerously-skip-permissions", "--model", "claude-opus-5-5"}, Stdin: strings.NewReader("do it"), Dir: home,
				Env: []string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NO_PROXY=*", "IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
					"ANTHROPIC_API_KEY=" + b.env["ANTHROPIC_API_KEY"], "ANTHROPIC_BASE_URL=" + b.env["ANTHROPIC_BASE_URL"],
				},
			})
			if err != nil || !strings.Contains(string(out), `"result":"Finished."`) || exists(home+"/ran") != (name == "ordinary") {
				t.Errorf("%v: %s", err, out)
			}
			b.Stop()
			var refused []string
			for _, l := range b.lines() {
				refused = append(refused, l.Reaches...)
			}
			if all := strings.Join(refused, " "); (name == "search") != strings.Contains(all, "web_search_") || name == "ordinary" && all != "" {
				t.Errorf("refused: %q", all)
			}
		})
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// scripted calls a tool, and finishes when it sees the result of it.
func scripted(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	body, _ := io.ReadAll(r.Body)
	block, delta := `{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"command\":\"touch ran\",\"description\":\"x\"}"}`
	stop := "tool_use"
	if strings.Contains(string(body), "toolu_1") {
		block, delta, stop = `{"type":"text","text":""}`, `{"type":"text_delta","text":"Finished."}`, "end_turn"
	}
	usage := `"input_tokens":1000,"cache_read_input_tokens":500,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200}`
	var events []string
	for _, data := range []string{
		fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5-5","content":[],"usage":{%s,"output_tokens":1}}}`, usage),
		fmt.Sprintf(`{"type":"content_block_start","index":0,"content_block":%s}`, block),
		fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":%s}`, delta),
		`{"type":"content_block_stop","index":0}`,
		fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q},"usage":{%s,"output_tokens":50}}`, stop, usage),
		`{"type":"message_stop"}`,
	} {
		var kind struct{ Type string }
		_ = json.Unmarshal([]byte(data), &kind)
		events = append(events, "event: "+kind.Type+"\ndata: "+data)
	}
	sse(w, events...)
}
