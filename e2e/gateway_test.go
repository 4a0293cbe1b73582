//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// modelHost answers both APIs on this machine's address on the engine's bridge: each answer
// says that it took a thousand tokens in and a hundred out.
type modelHost struct {
	url string

	mu   sync.Mutex
	keys []string
}

func newModelHost(t *testing.T) *modelHost {
	t.Helper()
	m := &modelHost{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.keys = append(m.keys, r.Header.Get("x-api-key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		m.mu.Unlock()
		var body struct{ Model string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/chat/completions") {
			fmt.Fprintf(w, `{"id":"c","object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}`, body.Model)
			return
		}
		fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100}}`, body.Model)
	}))
	o := outside{host: hostAddress(t)}
	_ = s.Listener.Close()
	s.Listener = o.listen(t, 0)
	s.Start()
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

// askAnthropic and askOpenAI are what an agent of any kind does, with curl.
const askAnthropic = `curl -s -o answer -w '%%{http_code}\n' "$ANTHROPIC_BASE_URL/v1/messages" -H "x-api-key: $ANTHROPIC_API_KEY" -H 'content-type: application/json' -d '{"model":"%s","max_tokens":10,"messages":[{"role":"user","content":"x"}]}'`

const askOpenAI = `curl -s -o answer -w '%%{http_code}\n' "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" -H 'content-type: application/json' -d '{"model":"%s","messages":[{"role":"user","content":"x"}]}'`

// ask runs a task whose agent is the script, with both keys for the gateway.
func (m *modelHost) ask(t *testing.T, more, script string) (call, *workorder.Result, *user) {
	t.Helper()
	u := newUser(t, "A_KEY=anthropic-key-of-the-test", "O_KEY=openai-key-of-the-test")
	c := u.run("", "create", "--repo", u.repo(map[string]string{"a": "1"}), "--task", "ask", "-p", u.project(`
name: ask
gateway:
  anthropic: {base_url: "`+m.url+`"}
  openai: {base_url: "`+m.url+`/v1"}
  prices:
    priced-model: {input: 1000, output: 2000}
  requests_per_minute: 6
secrets:
  ANTHROPIC_API_KEY: env://A_KEY
  OPENAI_API_KEY: env://O_KEY
timeout_minutes: 2
`+more+`
harness:
  name: command
  command: |
`+indent(script)))
	nowhere(t, u, c, "anthropic-key-of-the-test", "openai-key-of-the-test")
	return c, u.result(c.task(t)), u
}

func indent(script string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n    ") + "\n"
}

// The gateway counts for a harness that says nothing about cost itself, whatever API it speaks; it bounds the requests of a
// minute, and logs each.
func TestGatewayMetersAnyHarness(t *testing.T) {
	t.Parallel()
	m := newModelHost(t)
	// Too many requests are refused as the provider would.
	c, r, u := m.ask(t, "", fmt.Sprintf(askAnthropic, "priced-model")+"\n"+fmt.Sprintf(askOpenAI, "priced-model")+
		"\nfor i in 1 2 3 4 5 6; do "+fmt.Sprintf(askAnthropic, "priced-model")+"; done\ngrep -q rate_limit answer && echo done >done")
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	// Six times a thousand tokens at 0.001 and a hundred at 0.002.
	if u := r.Usage; u.InputTokens != 6000 || u.OutputTokens != 600 || u.CostUSD == nil || *u.CostUSD < 7.199 || *u.CostUSD > 7.201 || u.CostSource != workorder.CostByGateway {
		t.Errorf("usage %+v", u)
	}
	for i, want := range []string{"anthropic-key-of-the-test", "openai-key-of-the-test"} {
		if len(m.keys) != 6 || m.keys[i] != want {
			t.Errorf("the servers got %q", m.keys)
		}
	}
	// The log of the gateway has a line for each, without bodies.
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(resultPath(t, u, r.TaskID)), workorder.LogsDir, "gateway.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), "\n"); n != 8 || !strings.Contains(string(raw), "priced-model") || strings.Contains(string(raw), `"content"`) {
		t.Errorf("%d lines:\n%s", n, raw)
	}
}

// Each secret is where the project says, and nowhere else.
func TestSecretsHaveOneConsumer(t *testing.T) {
	t.Parallel()
	u := newUser(t, "S=secret-of-setup-1", "A=secret-of-agent-1", "V=secret-of-validate-1", "C=secret-of-commands-1")
	const say = `echo "print $0 ${FOR_SETUP:+setup} ${FOR_AGENT:+agent} ${FOR_VALIDATE:+validate} ${FOR_ALL:+commands}"`
	c := u.run("", "create", "--repo", u.repo(map[string]string{"a": "1"}), "--task", "look", "-p", u.project(`
name: secrets
secrets:
  FOR_SETUP: {from: env://S, for: setup}
  FOR_AGENT: {from: env://A, for: agent}
  FOR_VALIDATE: {from: env://V, for: validate}
  FOR_ALL: env://C
lifecycle:
  setup:
    - bash -c '`+say+`' in-setup
harness:
  name: command
  command: bash -c '`+say+`' in-agent; echo x >x
validate:
  look: bash -c '`+say+`' in-validate
`))
	if r := u.result(c.task(t)); c.code != 0 {
		t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	for _, want := range []string{"print in-setup setup   commands", "print in-agent  agent  commands", "print in-validate   validate commands"} {
		if !strings.Contains(c.stdout, want) {
			t.Errorf("%q is not in the output", want)
		}
	}
	nowhere(t, u, c, "secret-of-setup-1", "secret-of-agent-1", "secret-of-validate-1", "secret-of-commands-1")
}

// Settings that an agent left for the next one are not obeyed, and not lost.
func TestSettingsOfTheBranchAreRestored(t *testing.T) {
	t.Parallel()
	type branch struct {
		trust string
		want  string
		event bool
	}
	branches := []branch{{"", `settings {"of":"main"} mcp`, true}}
	if nightly {
		branches = append(branches, branch{"trust_branch_config: true\n", `settings {"of":"the agent"} mcp {"evil":1}`, false})
	}
	for _, tc := range branches {
		t.Run(tc.trust, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			repo := u.repo(map[string]string{".claude/settings.json": `{"of":"main"}`})
			project := u.project("name: settings\n" + tc.trust + `
harness:
  name: command
  command: |
    if [ "$SANDBOX_AGENT_MODE" = continue ]; then
      echo "print settings $(cat .claude/settings.json) mcp $(cat .mcp.json 2>/dev/null)"
      echo more >more; git add -A; git commit -qm more
      exit 0
    fi
    echo '{"of":"the agent"}' >.claude/settings.json; echo '{"evil":1}' >.mcp.json
    git add -A; git commit -qm evil; exit 1
`)
			id := u.run("", "create", "--repo", repo, "--task", "x", "-p", project).task(t)
			c := u.run("", "continue", id, "--project", project, "--repo", repo, "--json")
			var printed string
			var restored []string
			for line := range strings.Lines(c.stdout) {
				e, err := workorder.DecodeEvent([]byte(line))
				if err != nil {
					continue
				}
				if e.Type == workorder.EventConfigRestored {
					restored = append(restored, e.Path)
				}
				if p, ok := strings.CutPrefix(e.Text, "print "); ok && e.Type == workorder.EventAgentOutput {
					printed = strings.TrimSpace(p)
				}
			}
			if printed != tc.want || (len(restored) == 2) != tc.event {
				t.Errorf("the agent saw %q, want %q; restored %q", printed, tc.want, restored)
			}
			r := u.result(id)
			if got := gittest.Git(t, repo, "show", r.Branch+":.claude/settings.json"); got != `{"of":"the agent"}` {
				t.Errorf("the branch has %q", got)
			}
		})
	}
}
