//go:build e2e

package e2e

import (
	_ "embed"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

//go:embed testdata/openai.py
var openaiServer string

const (
	openaiModel = "gpt-5-mini"
	openaiKey   = "sk-right-9876543210-of-the-e2e-test"
)

// openaiCost is what the model costs by the gateway's table, in US dollars.
func openaiCost(m modelUsage) float64 {
	return (float64(m.Input)*0.25 + float64(m.CacheRead)*0.025 + float64(m.Output)*2) / 1e6
}

// openaiRun is a run of a real CLI against a scripted model in the box, behind the gateway.
type openaiRun struct {
	call
	result *workorder.Result
	repo   string
	events []workorder.Event
	calls  []openaiCall
	audit  []auditLine // what the gateway says
}

// auditLine is a line of the gateway's log.
type auditLine struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Read   int64 `json:"cache_read_tokens"`
}

type openaiCall struct {
	Status       int        `json:"status"`
	Path         string     `json:"path"`
	Model        string     `json:"model"`
	Usage        modelUsage `json:"usage"`
	Prompt       []string   `json:"prompt"`
	Results      []string   `json:"results"`
	Instructions []string   `json:"instructions"`
}

func (r *openaiRun) used() (sum modelUsage) {
	for _, c := range r.calls {
		sum.add(c.Usage)
	}
	return sum
}

func (r *openaiRun) of(kind workorder.EventType) (found []workorder.Event) {
	for _, e := range r.events {
		if e.Type == kind {
			found = append(found, e)
		}
	}
	return found
}

func (r *openaiRun) show(t *testing.T, path string) string {
	t.Helper()
	return gittest.Git(t, r.repo, "show", r.result.Branch+":"+path)
}

// realCLI is one of the CLIs and what it is asked to do.
type realCLI struct {
	harness string // as in the project file
	key     string // empty: openaiKey
	task    string
	more    string            // for the project file
	files   map[string]string // of the repository
	replies []reply
}

func (c realCLI) run(t *testing.T) *openaiRun {
	t.Helper()
	if c.key == "" {
		c.key = openaiKey
	}
	script, err := json.Marshal(c.replies)
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "THE_MODEL_KEY="+c.key)
	files := map[string]string{"openai.py": openaiServer, "script.json": string(script), "greeting.txt": "good morning\n"}
	maps.Copy(files, c.files)
	r := &openaiRun{repo: u.repo(files)}
	r.call = u.run("", "create", "--repo", r.repo, "--task", c.task, "-p", u.project(`
name: real
harness: `+c.harness+`
gateway:
  openai: {base_url: "http://127.0.0.1:8378/v1"}
secrets:
  OPENAI_API_KEY: env://THE_MODEL_KEY
lifecycle:
  setup:
    - |
      nohup python3 openai.py 8378 script.json /tmp/calls.jsonl >/tmp/model.log 2>&1 &
      for i in $(seq 100); do curl -fs -o /dev/null http://127.0.0.1:8378/ && exit 0; sleep 0.1; done; cat /tmp/model.log; exit 1
validate:
  calls: cat /tmp/calls.jsonl
strict: false # the clean checkouts have no such file
timeout_minutes: 3
`+c.more))
	r.result = u.result(r.task(t))
	dir := filepath.Dir(resultPath(t, u, r.result.TaskID))
	lines(t, filepath.Join(dir, workorder.EventsFile), &r.events)
	lines(t, filepath.Join(dir, workorder.LogsDir, "gateway.jsonl"), &r.audit)
	if len(r.result.Validation) == 1 && r.result.Validation[0].Passed {
		lines(t, filepath.Join(dir, r.result.Validation[0].Log), &r.calls)
	}
	nowhere(t, u, r.call, c.key)
	if log := gittest.Git(t, r.repo, "log", "-p", "--all"); strings.Contains(log, c.key) {
		t.Error("the key is in the repository")
	}
	return r
}

// succeeded checks what every run that did its task has in common: the tokens are those that the
// model gave, counted by the gateway, and all events are of the one schema.
func (r *openaiRun) succeeded(t *testing.T, c realCLI, tools ...string) {
	t.Helper()
	if r.code != 0 || r.result.Status != workorder.StatusSuccess || r.result.EndedBy != workorder.EndedByAgent || !r.result.Pushed {
		t.Fatalf("exit code %d, %s by %s: %s", r.code, r.result.Status, r.result.EndedBy, r.result.Reasons)
	}
	var script modelUsage
	for _, rep := range c.replies {
		script.add(rep.Usage)
	}
	if r.used() != script || len(r.calls) != len(c.replies) {
		t.Errorf("the model was asked for %+v in %d calls, the script has %+v in %d", r.used(), len(r.calls), script, len(c.replies))
	}
	u := r.result.Usage
	if u.InputTokens != script.Input || u.OutputTokens != script.Output || u.CacheReadTokens != script.CacheRead {
		t.Errorf("tokens %+v, the model gave %+v", u, script)
	}
	if u.CostUSD == nil || math.Abs(*u.CostUSD-openaiCost(script)) > 1e-9 {
		t.Errorf("cost %v, want %v", deref(u.CostUSD), openaiCost(script))
	}
	var metered modelUsage
	for _, l := range r.audit {
		metered.add(modelUsage{Input: l.Input, Output: l.Output, CacheRead: l.Read})
	}
	if metered != script {
		t.Errorf("the gateway metered %+v, want %+v", metered, script)
	}
	if len(r.calls) == 0 || !slices.Contains(r.calls[0].Prompt, c.task) {
		t.Error("the prompt did not reach the model")
	}
	var called []string
	open := map[string]bool{}
	for _, e := range r.events {
		switch e.Type {
		case workorder.EventAgentTool:
			called, open[e.ID] = append(called, e.Name), true
		case workorder.EventAgentToolResult:
			if !open[e.ID] || e.Status != "ok" {
				t.Errorf("tool result %+v", e)
			}
			delete(open, e.ID)
		}
	}
	if !slices.Equal(called, tools) || len(open) != 0 {
		t.Errorf("tool calls %q, want %q; without a result %v", called, tools, open)
	}
	last := c.replies[len(c.replies)-1].Text
	if a := r.result.Agent; a.SessionID == "" || a.Final != last || a.ExitCode == nil || *a.ExitCode != 0 || a.Turns == 0 {
		t.Errorf("agent %+v", a)
	}
	if said := r.of(workorder.EventAgentText); len(said) == 0 || said[len(said)-1].Text != last {
		t.Errorf("the agent said %+v", said)
	}
	if len(r.of(workorder.EventAgentUsage)) == 0 {
		t.Error("no event has the usage")
	}
}

// checkEnds runs what ends every harness in the same way: the budget, and a wrong key. work is a tool
// call that leaves a commit and a file.
func checkEnds(t *testing.T, harness string, work reply) {
	t.Helper()
	cheap, dear := modelUsage{1000, 50, 0, 0}, modelUsage{100_000, 100, 0, 0}
	t.Run("budget", func(t *testing.T) {
		work.Usage = cheap
		again := reply{Tool: work.Tool, Input: work.Input, Usage: dear}
		r := realCLI{harness: harness, task: "spend it all", more: "max_budget_usd: 0.02\n", replies: []reply{
			work, again, {Text: "This must not be paid for.", Usage: cheap},
		}}.run(t)
		if r.code != workorder.ExitBudget || r.result.Status != workorder.StatusBudgetExceeded || r.result.EndedBy != workorder.EndedByBudget {
			t.Fatalf("exit code %d, %s by %s: %s", r.code, r.result.Status, r.result.EndedBy, r.result.Reasons)
		}
		if !r.result.Resumable || !r.result.Pushed || r.result.Reasons.Code() != workorder.ReasonBudget {
			t.Errorf("resumable %v, pushed %v, reason %q", r.result.Resumable, r.result.Pushed, r.result.Reasons)
		}
		if files := gittest.Git(t, r.repo, "diff", "--name-only", "main", r.result.Branch); files != "committed\nuncommitted" {
			t.Errorf("the branch has %q, want the work so far", files)
		}
		want := cheap
		want.add(dear)
		if u := r.result.Usage; u.InputTokens != want.Input || u.OutputTokens != want.Output || u.CostUSD == nil ||
			math.Abs(*u.CostUSD-openaiCost(want)) > 1e-9 {
			t.Errorf("usage %+v, cost %v, want %+v", u, deref(u.CostUSD), want)
		}
		if len(r.calls) != 2 {
			t.Errorf("the model was called %d times, want an end after the second", len(r.calls))
		}
	})

	t.Run("wrong key", func(t *testing.T) {
		r := realCLI{harness: harness, key: "sk-wrong-987654321-of-the-e2e-test", task: "work", replies: []reply{{Text: "never said", Usage: cheap}}}.run(t)
		if r.code != workorder.ExitTaskFailed || r.result.Status != workorder.StatusFailed || r.result.EndedBy != workorder.EndedByAgent {
			t.Fatalf("exit code %d, %s by %s: %s", r.code, r.result.Status, r.result.EndedBy, r.result.Reasons)
		}
		if r.result.Reasons.Code() != workorder.ReasonModelKey || !strings.Contains(r.stdout+r.stderr, r.result.Reasons.String()) {
			t.Errorf("reason %q", r.result.Reasons)
		}
		if len(r.calls) == 0 || len(r.calls) > 2 || r.calls[0].Status != 401 {
			t.Errorf("the model was asked %+v: a key that is refused once is refused always", r.calls)
		}
		if r.result.Pushed || len(r.result.Commits) != 0 {
			t.Errorf("pushed %v, commits %+v", r.result.Pushed, r.result.Commits)
		}
	})
}

// checkTold sees to it that the agent hears of its budget. wait is a tool call that lasts long
// enough for the runner to notice what was spent.
func checkTold(t *testing.T, harness string, wait reply) {
	t.Helper()
	wait.Usage = modelUsage{85_000, 50, 0, 0}
	r := realCLI{harness: harness, task: "be told", more: "max_budget_usd: 0.025\n", replies: []reply{
		wait, {Text: "I stop here.", Usage: modelUsage{100, 10, 0, 0}},
	}}.run(t)
	if r.code != 0 || len(r.calls) != 2 {
		t.Fatalf("exit code %d, %s: %s; %d calls", r.code, r.result.Status, r.result.Reasons, len(r.calls))
	}
	said := func(c openaiCall) bool {
		return strings.Contains(strings.Join(c.Instructions, "\n"), "80 % of the budget")
	}
	if said(r.calls[0]) || !said(r.calls[1]) {
		t.Errorf("told before the first call: %v, before the second: %v", said(r.calls[0]), said(r.calls[1]))
	}
	if n := r.of(workorder.EventNotice); len(n) != 1 || n[0].Status != "ok" {
		t.Errorf("notices %+v", n)
	}
}

// checkHang sees to it that a session that hung goes on in another process, and nothing counts twice.
// window is its hang_timeout: shorter than the CLI's own patience with a command, and longer than its slowest start.
func checkHang(t *testing.T, harness, window string, hang, done reply) {
	t.Helper()
	hang.Usage, done.Usage = modelUsage{1000, 50, 0, 0}, modelUsage{700, 30, 300, 0}
	c := realCLI{harness: harness, task: "hang once", more: "hang_timeout: " + window + "\n", replies: []reply{
		hang, done, {Text: "Done after all.", Usage: modelUsage{100, 10, 900, 0}},
	}}
	r := c.run(t)
	if r.code != 0 || r.result.Status != workorder.StatusSuccess || len(r.calls) != 3 {
		t.Fatalf("exit code %d, %s: %s; %d calls", r.code, r.result.Status, r.result.Reasons, len(r.calls))
	}
	if h := r.of(workorder.EventHang); len(h) != 1 || h[0].Status != "resumed" {
		t.Errorf("hangs %+v", h)
	}
	// It is the same conversation.
	if !slices.Contains(r.calls[1].Prompt, c.task) {
		t.Errorf("after the hang the model was told %q", r.calls[1].Prompt)
	}
	sum := modelUsage{1800, 90, 1200, 0}
	if u := r.result.Usage; u.InputTokens != sum.Input || u.OutputTokens != sum.Output || u.CacheReadTokens != sum.CacheRead {
		t.Errorf("tokens %+v, the model gave %+v", u, sum)
	}
}

func codexSays(command string) reply {
	return reply{Tool: "exec_command", Input: map[string]string{"cmd": command}}
}

func TestRealCodex(t *testing.T) {
	t.Parallel()
	const harness = "{name: codex, model: " + openaiModel + ", version: 0.169.0}"
	t.Run("edit and commit", func(t *testing.T) {
		read := codexSays("cat greeting.txt")
		edit := codexSays("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: greeting.txt\n@@\n-good morning\n+good evening\n*** End Patch\nEOF\n")
		commit := codexSays("id -un >who.txt && docker ps >/dev/null && git add -A && git commit -q -m 'Greet in the evening'")
		read.Usage, edit.Usage, commit.Usage = modelUsage{3000, 50, 0, 0}, modelUsage{300, 80, 2900, 0}, modelUsage{100, 60, 3200, 0}
		c := realCLI{
			harness: harness, task: "Say good evening in «greeting.txt»; $(touch pwned)",
			// Servers and hooks that a repository names are not used.
			files: map[string]string{".codex/config.toml": "openai_base_url = \"http://127.0.0.1:1/v1\"\nmodel = \"other\"\n"},
			replies: []reply{
				read, edit, commit, {Text: "Finished: it greets in the evening.", Usage: modelUsage{90, 40, 3200, 0}},
			},
		}
		r := c.run(t)
		r.succeeded(t, c, "command_execution", "file_change", "command_execution")
		if got := r.show(t, "greeting.txt") + " " + r.show(t, "who.txt"); got != "good evening sandbox" {
			t.Errorf("the branch has %q", got)
		}
		if len(r.result.Commits) != 1 || r.result.Commits[0].Subject != "Greet in the evening" {
			t.Errorf("commits %+v", r.result.Commits)
		}
		if r.result.Usage.CostSource != workorder.CostByGateway {
			t.Errorf("cost by %q: the CLI itself knows none", r.result.Usage.CostSource)
		}
		if a := r.result.Agent; a.Harness != "codex" || a.Model != openaiModel || a.Version != "0.169.0" {
			t.Errorf("agent %+v", a)
		}
		for _, call := range r.calls {
			if call.Path != "/v1/responses" || call.Model != openaiModel {
				t.Errorf("call %s with model %s", call.Path, call.Model)
			}
		}
	})
	if !nightly {
		return
	}
	t.Run("code mode", func(t *testing.T) {
		// The models of today write JavaScript, which a second program of the CLI runs.
		script := `const r = await tools.exec_command({cmd: "echo by code >code.txt && git add -A && git commit -q -m Code && cat code.txt"}); text(r.output);`
		r := realCLI{harness: "{name: codex, model: gpt-6.1-sol}", task: "write code", replies: []reply{
			{Tool: "custom:exec", Input: map[string]string{"input": script}, Usage: modelUsage{1000, 50, 0, 0}},
			{Text: "Done.", Usage: modelUsage{100, 10, 900, 0}},
		}}.run(t)
		if r.code != 0 || r.show(t, "code.txt") != "by code" {
			t.Fatalf("exit code %d, %s: %s", r.code, r.result.Status, r.result.Reasons)
		}
		if tools := r.of(workorder.EventAgentTool); len(tools) != 1 || tools[0].Name != "command_execution" {
			t.Errorf("tool calls %+v", tools)
		}
		if u := r.result.Usage; u.InputTokens != 1100 || u.OutputTokens != 60 || u.CacheReadTokens != 900 || u.CostUSD == nil {
			t.Errorf("usage %+v", u)
		}
	})
	checkEnds(t, harness, codexSays("[ -e committed ] && exit; echo 1 >committed && git add -A && git commit -q -m 'work so far' && echo 2 >uncommitted"))
	t.Run("told of the budget", func(t *testing.T) {
		checkTold(t, harness, codexSays("echo told >told; until ls /tmp/sandbox-agent-notice-*/notice; do sleep 0.2; done"))
	})
	t.Run("hang", func(t *testing.T) {
		checkHang(t, harness, "3s", codexSays("exec sleep 600"), codexSays("echo after >after"))
	})
}
