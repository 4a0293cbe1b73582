//go:build e2e && nightly

package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// asked is what the model was asked in call n of the conversation.
func (m *model) asked(t *testing.T, n int) string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.prompts) <= n {
		t.Fatalf("the model was asked %d times, want more than %d", len(m.prompts), n)
	}
	return m.prompts[n]
}

func TestRealClaudeMeetsALimit(t *testing.T) {
	for name, limited := range map[string]bool{"CLAUDE_CODE_OAUTH_TOKEN": true, "ANTHROPIC_API_KEY": false} {
		t.Run(name, func(t *testing.T) {
			m := &model{replies: []reply{{command: "echo hello >hello.txt"}, {limited: true}}}
			b := claudeBox(t, m)
			b.Env = slices.DeleteFunc(b.Env, func(kv string) bool { return strings.HasPrefix(kv, "ANTHROPIC_API_KEY=") })
			b.Env = append(b.Env, name+"=sk-test-0123456789")
			got := Agent(t.Context(), b.Config)
			if !limited { // the same refusal is somebody's decision with a key, and does not end by waiting
				check(t, got, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent, "429")
				return
			}
			check(t, got, workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit, "5-hour limit")
			if got.ResumeAt == nil || !got.ResumeAt.Equal(limitReset) {
				t.Errorf("resume at %v, want %s", got.ResumeAt, limitReset)
			}
			if got.Usage.CostUSD == nil || *got.Usage.CostUSD <= 0 || got.Usage.InputTokens != 1000 {
				t.Errorf("usage %+v", got.Usage)
			}
			if len(m.prompts) != 2 {
				t.Errorf("the model was asked %d times", len(m.prompts))
			}
		})
	}
}

func TestRealClaudeIsToldOfTime(t *testing.T) {
	const waits = "while ! [ -e go ]; do sleep 0.1; done"
	m := &model{replies: []reply{{command: waits}, {command: "echo more"}, {text: "Finished."}}}
	b := claudeBox(t, m)
	// The repository has hooks turned off.
	if err := os.MkdirAll(filepath.Join(b.Workspace, ".claude"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write(t, filepath.Join(b.Workspace, ".claude/settings.json"), `{"disableAllHooks":true}`)
	b.Deadline = time.Now().Add(5 * time.Second)
	go func() {
		waitFor(t, "notice", func() bool { return len(b.of(workorder.EventNotice)) > 0 })
		b.write(t, filepath.Join(b.Workspace, "go"), "")
	}()
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	ev := b.of(workorder.EventNotice)
	if len(ev) != 1 || ev[0].Status != "ok" {
		t.Fatalf("events %+v", ev)
	}
	for n, want := range []int{0, 1, 1} { // each call carries the conversation so far
		if got := strings.Count(m.asked(t, n), ev[0].Text); got != want {
			t.Errorf("call %d of the model has the notice %d times, want %d", n, got, want)
		}
	}
}

// TestRealClaudeIsToldOfMoney: a reply costs $0.005, so that five are 82 % of
// the budget and six are within it.
func TestRealClaudeIsToldOfMoney(t *testing.T) {
	quick := reply{command: "true"}
	m := &model{replies: []reply{quick, quick, quick, quick, quick, {command: "while ! [ -e go ]; do sleep 0.1; done"}, {text: "Finished."}}}
	b := claudeBox(t, m)
	b.Order.MaxBudgetUSD = new(0.0305)
	go func() {
		waitFor(t, "notice", func() bool { return len(b.of(workorder.EventNotice)) > 0 })
		b.write(t, filepath.Join(b.Workspace, "go"), "")
	}()
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget)
	if !strings.Contains(m.asked(t, 6), "80 %") || strings.Contains(m.asked(t, 5), "80 %") {
		t.Error("the notice did not arrive with the call after it")
	}
}

func TestRealClaudeHangs(t *testing.T) {
	m := &model{replies: []reply{{command: "echo hello >hello.txt"}, {silent: true}, {command: "echo again >>hello.txt"}, {text: "Finished."}}}
	b := claudeBox(t, m)
	b.Order.Task = "the task of the first process"
	// Longer than the CLI is busy with itself after it began.
	b.Hang = 15 * time.Second
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusSuccess, workorder.EndedByAgent, "")
	ev := b.of(workorder.EventHang)
	if len(ev) != 1 || ev[0].Status != "resumed" || !exists(filepath.Join(b.OutDir, ev[0].Path)) {
		t.Fatalf("events %+v", ev)
	}
	again := m.asked(t, 2)
	_, quiet, _ := strings.Cut(ev[0].Text, "no sign of life for ") // the window, or longer where the CLI was busy with itself
	quiet, _, _ = strings.Cut(quiet, ":")
	for _, want := range []string{"the task of the first process", "echo hello \\u003ehello.txt", "no sign of life for " + quiet} {
		if !strings.Contains(again, want) && !strings.Contains(again, strings.ReplaceAll(want, "\\u003e", ">")) {
			t.Errorf("the resumed session lacks %q", want)
		}
	}
	sessions := map[string]bool{}
	for line := range strings.Lines(b.read(t, filepath.Join(b.OutDir, AgentStdout))) {
		if _, id, ok := strings.Cut(line, `"session_id":"`); ok {
			sessions[id[:36]] = true
		}
	}
	if len(sessions) != 1 || !sessions[got.Agent.SessionID] {
		t.Errorf("sessions %v, want %s alone", sessions, got.Agent.SessionID)
	}
	// Three replies were paid for, in two processes.
	if got.Usage.InputTokens != 3000 || got.Usage.OutputTokens != 150 || got.Usage.CostUSD == nil || *got.Usage.CostUSD < 0.0149 || *got.Usage.CostUSD > 0.0151 {
		t.Errorf("usage %+v", got.Usage)
	}
	if b.read(t, filepath.Join(b.Workspace, "hello.txt")) != "hello\nagain\n" {
		t.Error("the work is not whole")
	}
}
