//go:build e2e

package e2e

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

//go:embed testdata/model.py
var modelServer string

const (
	claudeModel = "claude-sonnet-4-5"
	claudeKey   = "sk-right-0123456789-of-the-e2e-test"
)

// The model's price in US dollars for a million tokens: the list price that the CLI computes with.
const (
	priceInput      = 3.0
	priceOutput     = 15.0
	priceCacheRead  = 0.30
	priceCacheWrite = 3.75
)

// reply is one scripted answer of the model.
type reply struct {
	Text  string            `json:"text,omitempty"`
	Tool  string            `json:"tool,omitempty"`
	Input map[string]string `json:"input,omitempty"`
	Usage modelUsage        `json:"usage"`
	// Namespace is the tool's, which Codex gives those of a server.
	Namespace string `json:"namespace,omitempty"`
}

type modelUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (m *modelUsage) add(o modelUsage) {
	m.Input, m.Output, m.CacheRead, m.CacheWrite = m.Input+o.Input, m.Output+o.Output, m.CacheRead+o.CacheRead, m.CacheWrite+o.CacheWrite
}

func (m modelUsage) cost() float64 {
	return (float64(m.Input)*priceInput + float64(m.Output)*priceOutput + float64(m.CacheRead)*priceCacheRead + float64(m.CacheWrite)*priceCacheWrite) / 1e6
}

// claudeRun is a run of the real Claude Code CLI against a scripted model in the box.
type claudeRun struct {
	call
	result *workorder.Result
	repo   string
	dir    string // the run's folder
	events []workorder.Event
	calls  []modelCall
}

type modelCall struct {
	Status int        `json:"status"`
	Usage  modelUsage `json:"usage"`
	Prompt []string   `json:"prompt"`
	// Results are what tools answered.
	Results []string `json:"results"`
}

// used adds up what the model server says it answered.
func (r *claudeRun) used() (sum modelUsage) {
	for _, c := range r.calls {
		sum.add(c.Usage)
	}
	return sum
}

func (r *claudeRun) of(kind workorder.EventType) (found []workorder.Event) {
	for _, e := range r.events {
		if e.Type == kind {
			found = append(found, e)
		}
	}
	return found
}

// runClaude does the task with the given replies. more is added to the project.
func runClaude(t *testing.T, key, task, more string, replies ...reply) *claudeRun {
	t.Helper()
	script, err := json.Marshal(replies)
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "THE_MODEL_KEY="+key)
	r := &claudeRun{repo: u.repo(map[string]string{"model.py": modelServer, "script.json": string(script), "greeting.txt": "good morning\n"})}
	r.call = u.run("", "create", "--repo", r.repo, "--task", task, "-p", u.project(`
name: claude
harness:
  name: claude-code
  model: `+claudeModel+`
env:
  ANTHROPIC_BASE_URL: http://127.0.0.1:8377
secrets:
  ANTHROPIC_API_KEY: env://THE_MODEL_KEY
lifecycle:
  setup:
    - |
      nohup python3 model.py 8377 script.json /tmp/calls.jsonl >/tmp/model.log 2>&1 &
      for i in $(seq 100); do curl -fs -o /dev/null http://127.0.0.1:8377/ && exit 0; sleep 0.1; done; cat /tmp/model.log; exit 1
validate:
  calls: cat /tmp/calls.jsonl
strict: false # the clean checkouts have no such file
timeout_minutes: 3
`+more))
	r.result = u.result(r.task(t))
	r.dir = filepath.Dir(resultPath(t, u, r.result.TaskID))
	lines(t, filepath.Join(r.dir, workorder.EventsFile), &r.events)
	if len(r.result.Validation) == 1 && r.result.Validation[0].Passed {
		lines(t, filepath.Join(r.dir, r.result.Validation[0].Log), &r.calls)
	}
	nowhere(t, u, r.call, key)
	if log := gittest.Git(t, r.repo, "log", "-p", "--all"); strings.Contains(log, key) {
		t.Error("the key is in the repository")
	}
	return r
}

// lines appends the JSON lines of a file to list.
func lines[T any](t *testing.T, path string, list *[]T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v in %q", path, err, sc.Text())
		}
		*list = append(*list, v)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
}

func checkUsage(t *testing.T, got workorder.Usage, want modelUsage) {
	t.Helper()
	checkCounts(t, got, want)
	if got.CostSource != workorder.CostByHarness {
		t.Errorf("cost source %q", got.CostSource)
	}
}

// checkCounts is checkUsage for an agent that may be stopped before it has said what it cost: then the gateway says it.
func checkCounts(t *testing.T, got workorder.Usage, want modelUsage) {
	t.Helper()
	if got.InputTokens != want.Input || got.OutputTokens != want.Output || got.CacheReadTokens != want.CacheRead || got.CacheWriteTokens != want.CacheWrite {
		t.Errorf("tokens %+v, the model gave %+v", got, want)
	}
	if got.CostUSD == nil || math.Abs(*got.CostUSD-want.cost()) > 1e-9 {
		t.Errorf("cost %v, want %v", deref(got.CostUSD), want.cost())
	}
}

func deref(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// The real CLIs are in the image at pinned versions, and their streams, recorded, are tests of runner/harness. With each change
// every one of them does a task, and one runs out of money.
func TestRealClaudeCode(t *testing.T) {
	t.Parallel()
	t.Run("edit and commit", func(t *testing.T) {
		const task = "Say good evening in «greeting.txt»; $(touch pwned)"
		replies := []reply{
			{Tool: "Read", Input: map[string]string{"file_path": "/workspace/greeting.txt"}, Usage: modelUsage{1000, 50, 0, 2000}},
			{
				Tool:  "Edit",
				Input: map[string]string{"file_path": "/workspace/greeting.txt", "old_string": "good morning", "new_string": "good evening"},
				Usage: modelUsage{300, 80, 2000, 500},
			},
			{Tool: "Write", Input: map[string]string{"file_path": "/workspace/who.txt", "content": "written by claude\n"}, Usage: modelUsage{200, 70, 2500, 0}},
			{
				Tool:  "Bash",
				Input: map[string]string{"command": "id -un >>who.txt && docker ps >/dev/null && git add -A && git commit -q -m 'Greet in the evening'", "description": "commit"},
				Usage: modelUsage{100, 60, 2500, 0},
			},
			{Text: "Finished: it greets in the evening.", Usage: modelUsage{90, 40, 2500, 0}},
		}
		r := runClaude(t, claudeKey, task, "", replies...)
		if r.code != 0 || r.result.Status != workorder.StatusSuccess || r.result.EndedBy != workorder.EndedByAgent || !r.result.Pushed {
			t.Fatalf("exit code %d, %s by %s: %s", r.code, r.result.Status, r.result.EndedBy, r.result.Reasons)
		}
		show := func(path string) string { return gittest.Git(t, r.repo, "show", r.result.Branch+":"+path) }
		if got := show("greeting.txt"); got != "good evening" {
			t.Errorf("greeting.txt has %q", got)
		}
		if got := show("who.txt"); got != "written by claude\nsandbox" {
			t.Errorf("who.txt has %q", got)
		}
		if len(r.result.Commits) != 1 || r.result.Commits[0].Subject != "Greet in the evening" {
			t.Errorf("commits %+v", r.result.Commits)
		}
		if files := gittest.Git(t, r.repo, "diff", "--name-only", "main", r.result.Branch); files != "greeting.txt\nwho.txt" {
			t.Errorf("changed: %s", files)
		}

		var script modelUsage
		for _, rep := range replies {
			script.add(rep.Usage)
		}
		if r.used() != script {
			t.Errorf("the model was asked for %+v in %d calls, the script has %+v", r.used(), len(r.calls), script)
		}
		checkUsage(t, r.result.Usage, script)
		a := r.result.Agent
		if a.Harness != "claude-code" || a.Model != claudeModel || a.Version == "" || a.SessionID == "" || a.Turns != len(replies) ||
			a.ExitCode == nil || *a.ExitCode != 0 || a.Final != "Finished: it greets in the evening." {
			t.Errorf("agent %+v", a)
		}
		// The prompt reached the model byte for byte.
		if len(r.calls) == 0 || !slices.Contains(r.calls[0].Prompt, task) {
			t.Error("the prompt did not reach the model")
		}

		var tools []string
		for _, e := range r.of(workorder.EventAgentTool) {
			tools = append(tools, e.Name)
		}
		if want := []string{"Read", "Edit", "Write", "Bash"}; !slices.Equal(tools, want) {
			t.Errorf("tool calls %q, want %q", tools, want)
		}
		for _, e := range r.of(workorder.EventAgentToolResult) {
			if e.Status != "ok" {
				t.Errorf("tool result %+v", e)
			}
		}
		if n := len(r.of(workorder.EventAgentToolResult)); n != len(tools) {
			t.Errorf("%d tool results", n)
		}
		if last := r.events[len(r.events)-1]; last.Type != workorder.EventResult || last.Result == nil || last.Result.Usage.InputTokens != script.Input {
			t.Errorf("last event %+v", last)
		}
		for i, e := range r.events {
			if e.Seq != int64(i+1) {
				t.Errorf("event %d has number %d", i+1, e.Seq)
				break
			}
		}
		for _, want := range []string{"Edit", "Bash", "Greet in the evening", "$0.0"} {
			if !strings.Contains(r.stdout+r.stderr, want) {
				t.Errorf("the screen does not show %q", want)
			}
		}
	})

	if !nightly {
		return
	}
	t.Run("budget", func(t *testing.T) {
		cheap, dear := modelUsage{1000, 50, 0, 0}, modelUsage{100_000, 100, 0, 0}
		r := runClaude(t, claudeKey, "spend it all", "max_budget_usd: 0.05\n",
			reply{
				Tool:  "Bash",
				Input: map[string]string{"command": "echo 1 >committed && git add -A && git commit -q -m 'work so far' && echo 2 >uncommitted", "description": "work"},
				Usage: cheap,
			},
			// The CLI counts when a reply is complete; this one's tool may already run by then.
			reply{Tool: "Read", Input: map[string]string{"file_path": "/workspace/committed"}, Usage: dear},
			reply{Text: "This must not be paid for.", Usage: cheap},
		)
		if r.code != workorder.ExitBudget || r.result.Status != workorder.StatusBudgetExceeded || r.result.EndedBy != workorder.EndedByBudget {
			t.Fatalf("exit code %d, %s by %s: %s", r.code, r.result.Status, r.result.EndedBy, r.result.Reasons)
		}
		if !r.result.Resumable || !r.result.Pushed || r.result.Reasons.Code() != workorder.ReasonBudget {
			t.Errorf("resumable %v, pushed %v, reason %q", r.result.Resumable, r.result.Pushed, r.result.Reasons)
		}
		files := gittest.Git(t, r.repo, "diff", "--name-only", "main", r.result.Branch)
		if files != "committed\nuncommitted" {
			t.Errorf("the branch has %q, want the work so far", files)
		}
		if len(r.result.Commits) != 2 || r.result.Commits[1].Subject != "work so far" {
			t.Errorf("commits %+v", r.result.Commits)
		}
		want := cheap
		want.add(dear)
		checkCounts(t, r.result.Usage, want)
		if len(r.calls) != 2 {
			t.Errorf("the model was called %d times, want an end after the second", len(r.calls))
		}
	})

	t.Run("wrong key", func(t *testing.T) {
		r := runClaude(t, "sk-wrong-987654321-of-the-e2e-test", "work", "", reply{Text: "never said", Usage: modelUsage{1, 1, 0, 0}})
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
		if branches := gittest.Git(t, r.repo, "branch", "--list", "agent/*"); branches != "" {
			t.Errorf("an empty branch was pushed: %s", branches)
		}
	})
}
