package runner

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	return context.WithCancelCause(t.Context())
}

func (b *box) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Error(err)
	}
}

// claudeOf is a box whose claude is a script. The real one is in the e2e tests.
func claudeOf(t *testing.T, script string) *box {
	t.Helper()
	b := newBox(t)
	fakeClaude(t, b, script)
	return b
}

// turns is a claude that does first in a new session and second in one that is resumed.
func turns(first, second string) string {
	return `echo "$@" >>../args; cat >../prompt; n=; while [ $# -gt 0 ]; do case $1 in
		--session-id|--resume) n=$1; s=$2;; esac; shift; done
	say() { printf '{"session_id":"%s",%s}\n' "$s" "$1"; }
	say '"type":"system","subtype":"init","claude_code_version":"9.9.9","model":"m"'
	mkdir -p $HOME/.claude/projects/p
	cost() { printf '{"type":"cost-state","totalCostUSD":%s}\n' $1 >>$HOME/.claude/projects/p/$s.jsonl; }
	case $n in --session-id) ` + first + `;; --resume) ` + second + `;; esac`
}

const (
	hangs = `trap 'exit 143' INT; sleep 3600 & wait`
	done  = `say '"type":"result","subtype":"success","num_turns":2,"result":"done","total_cost_usd":0.75,"modelUsage":{"m":{"inputTokens":70,"costUSD":0.75}},"model_usage_since_last_result":{"m":{"inputTokens":30,"costUSD":0.5}}'`
)

var seconds = lazyregexp.New(`\b[0-9]+s\b`)

func TestHangIsResumedOnce(t *testing.T) {
	t.Parallel()
	interrupted := `trap 'say "\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,\"num_turns\":3,\"total_cost_usd\":0.25,\"modelUsage\":{\"m\":{\"inputTokens\":40,\"costUSD\":0.25}},\"model_usage_since_last_result\":{\"m\":{\"inputTokens\":40,\"costUSD\":0.25}}"; exit 0' INT; sleep 3600 & wait`
	for name, c := range map[string]struct {
		first, second string
		status        workorder.Status
		by            workorder.EndedBy
		reason        workorder.ReasonCode
		cost          float64 // -1: not known
		tokens        int64
		turns         int
		hangs         []string
	}{
		"goes on":                            {interrupted, done, workorder.StatusSuccess, workorder.EndedByAgent, "", 0.75, 70, 5, []string{"resumed"}},
		"cost from the record, then goes on": {"cost 0.25; " + hangs, done, workorder.StatusSuccess, workorder.EndedByAgent, "", 0.75, 70, 2, []string{"resumed"}},
		"hangs again":                        {"cost 0.25; " + interrupted, "cost 0.25; cost 0.5; " + hangs, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, 0.5, 40, 3, []string{"resumed", "ended"}},
		"hangs twice, cost of the session":   {"cost 0.25; " + hangs, "cost 0.75; " + hangs, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, 0.75, 0, 0, []string{"resumed", "ended"}},
		"hangs twice, the cost was lost":     {"cost 0.25; " + hangs, "cost 0.125; " + hangs, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, 0.375, 0, 0, []string{"resumed", "ended"}},
		"fails then":                         {interrupted, "exit 3", workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent, 0.25, 40, 3, []string{"resumed"}},
		"meets a limit then": {
			interrupted, `say '"type":"result","is_error":true,"api_error":"usage_limit_reached","result":"limit"'; exit 1`,
			workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit, 0.25, 40, 3,
			[]string{"resumed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := claudeOf(t, turns(c.first, c.second))
			b.patient(time.Minute)
			b.Hang = time.Second
			b.Order.MaxBudgetUSD = new(10.0)
			got := Agent(t.Context(), b.Config)
			check(t, got, c.status, c.by, c.reason)
			var hangs []string
			var silent string // for how long the first one was
			for _, e := range b.of(workorder.EventHang) {
				if hangs = append(hangs, e.Status); silent == "" {
					silent = seconds.FindString(e.Text)
				}
			}
			if fmt.Sprint(hangs) != fmt.Sprint(c.hangs) || len(got.Evidence) != len(c.hangs) {
				t.Errorf("hangs %q, evidence %+v", hangs, got.Evidence)
			}
			cost := -1.0
			if got.Usage.CostUSD != nil {
				cost = *got.Usage.CostUSD
			}
			if math.Abs(cost-c.cost) > 1e-9 || got.Usage.InputTokens != c.tokens || got.Agent.Turns != c.turns {
				t.Errorf("cost %v, usage %+v, %d turns", cost, got.Usage, got.Agent.Turns)
			}
			args := strings.Split(strings.TrimSpace(b.read(t, filepath.Join(b.Workspace, "../args"))), "\n")
			if len(args) != 2 || !strings.Contains(args[1], "--resume "+got.Agent.SessionID) || !strings.Contains(args[0], "--session-id "+got.Agent.SessionID) {
				t.Errorf("calls %q, session %s", args, got.Agent.SessionID)
			}
			left := fmt.Sprintf("--max-budget-usd %v", 10-0.25)
			if !strings.Contains(args[1], left) {
				t.Errorf("call %q, want %s", args[1], left)
			}
			if prompt := b.read(t, filepath.Join(b.Workspace, "../prompt")); silent == "" || seconds.FindString(prompt) != silent || !strings.Contains(prompt, "sleep 3600") {
				t.Errorf("prompt %q", prompt)
			}
			if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); strings.Count(out, `"init"`) != 2 {
				t.Errorf("the log lacks a process: %s", out)
			}
			if n := len(b.of(workorder.EventAgentFinished)); n != 1 {
				t.Errorf("%d ends", n)
			}
		})
	}
}

// TestStopDuringAHang: what stops the run while a hung agent is stopped ends it.
func TestStopDuringAHang(t *testing.T) {
	t.Parallel()
	b := claudeOf(t, turns("trap '' INT TERM; sleep 3600 & wait; sleep 3600", done))
	b.Hang = time.Second
	ctx, cancel := contextWithCause(t)
	emit := b.Emit
	b.Emit = func(e workorder.Event) {
		emit(e)
		if e.Type == workorder.EventHang {
			cancel(ErrInterrupted)
		}
	}
	check(t, Agent(ctx, b.Config), workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal)
	if args := b.read(t, filepath.Join(b.Workspace, "../args")); strings.Contains(args, "--resume") {
		t.Error("it was resumed after the stop")
	}
}

func TestNoMoneyForAResume(t *testing.T) {
	t.Parallel()
	b := claudeOf(t, turns(`say '"type":"attachment"'; printf '{"type":"attachment","attachment":{"type":"budget_usd","used":1}}\n' >>$HOME/.claude/projects/p/$s.jsonl; `+hangs, done))
	b.Hang = 5 * time.Second // longer than the time between two looks at the cost
	b.Order.MaxBudgetUSD = new(1.0)
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang)
	if ev := b.of(workorder.EventHang); len(ev) != 1 || ev[0].Status != "ended" {
		t.Errorf("events %+v", ev)
	}
	if ev := b.of(workorder.EventNotice); len(ev) != 1 || ev[0].Status != "ok" {
		t.Errorf("the cost in the transcript was not watched: %+v", ev)
	}
	if got.Usage.CostUSD == nil || *got.Usage.CostUSD != 1 {
		t.Errorf("usage %+v", got.Usage)
	}
}

func TestUsageLimitParks(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for name, c := range map[string]struct {
		at       time.Time
		believed bool
	}{
		"in an hour": {now.Add(time.Hour), true}, "in a week": {now.Add(7 * 24 * time.Hour), true},
		"in the past": {now.Add(-time.Hour), false}, "in nine days": {now.Add(9 * 24 * time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, fmt.Sprintf(`echo '{"type":"limit","resume_at":"%s","text":"come back"}'; sleep 3600`, c.at.Format(time.RFC3339)))
			got := Agent(t.Context(), b.Config)
			check(t, got, workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit, "come back")
			if (got.ResumeAt != nil) != c.believed || got.ResumeAt != nil && !got.ResumeAt.Equal(c.at) {
				t.Errorf("resume at %v, want %s (%v)", got.ResumeAt, c.at, c.believed)
			}
		})
	}
}

func TestBudgetOfSeveralAttempts(t *testing.T) {
	t.Parallel()
	b := newBox(t, `echo '{"type":"agent.usage","usage":{"cost_usd":2.5}}'; sleep 3600`)
	b.Order.MaxBudgetUSD, b.SpentUSD = new(2.0), 3
	check(t, Agent(t.Context(), b.Config), workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, "$2.5 ", "$3 ", "max_budget_usd", "$5")
}

func TestPromptInsteadOfTheTask(t *testing.T) {
	t.Parallel()
	b := newBox(t, "cat")
	b.Prompt = "go on"
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); out != "go on" {
		t.Errorf("the agent received %q", out)
	}
}
