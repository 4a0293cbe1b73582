package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// box is a place to run agents in, without root.
type box struct {
	Config
	mu     sync.Mutex
	events []workorder.Event
}

func newBox(t *testing.T, command ...string) *box {
	t.Helper()
	dir := t.TempDir()
	b := &box{Config: Config{
		Order: &workorder.Order{
			TaskID: "T-AAAAAAAA", Mode: workorder.ModeCreate, Task: "do it",
			Harness: workorder.Harness{Name: "command", Command: command},
		},
		Workspace: filepath.Join(dir, "workspace"), Home: filepath.Join(dir, "home"), OutDir: filepath.Join(dir, "out"),
		Env: []string{"PATH=" + os.Getenv("PATH")},
	}}
	for _, d := range []string{b.Workspace, b.Home, b.OutDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.Emit = func(e workorder.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	return b
}

func (b *box) read(t *testing.T, path string) string {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func (b *box) of(typ workorder.EventType) (out []workorder.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Type == typ {
			out = append(out, e)
		}
	}
	return out
}

// waitFor waits until the agent has got somewhere.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s did not happen", what)
			return
		}
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// check compares an ending, and what its reasons name: values that a person needs, not the words around them.
func check(t *testing.T, got AgentOutcome, s workorder.Status, by workorder.EndedBy, code workorder.ReasonCode, named ...string) {
	t.Helper()
	if got.Status != s || got.EndedBy != by || got.Reasons.Code() != code {
		t.Errorf("ended %s by %s (%+v), want %s by %s (%s)", got.Status, got.EndedBy, got.Reasons, s, by, code)
	}
	for _, n := range named {
		if !strings.Contains(got.Reasons.String(), n) {
			t.Errorf("%+v does not name %q", got.Reasons, n)
		}
	}
}

func TestPromptArrivesByteForByte(t *testing.T) {
	t.Parallel()
	var all strings.Builder // every rune a task may hold is data
	for r := rune(1); r < 0x300; r++ {
		all.WriteRune(r)
	}
	for name, task := range map[string]string{
		"hostile":    "$(touch pwned) `touch pwned` \"x\" 'y' \\\n; touch pwned; -é %s ${HOME}\r\n\ttail \x01\x7f",
		"dash":       "--help",
		"no newline": "x", "newlines": "\n\nx\n\n\n",
		"runes": all.String(),
		"large": strings.Repeat("0123456789abcdef\n", workorder.MaxTask/17),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, `cat >../stdin; cp "$SANDBOX_AGENT_PROMPT_FILE" ../file; stat -c %a "$SANDBOX_AGENT_PROMPT_FILE"
				echo "$SANDBOX_AGENT_PROMPT_FILE" >../path; echo "$SANDBOX_AGENT_TASK_ID $SANDBOX_AGENT_MODE $SANDBOX_AGENT_WORKSPACE $HOME" >../env`)
			b.Order.Task = task
			check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
			dir := filepath.Dir(b.Workspace)
			if b.read(t, dir+"/stdin") != task || b.read(t, dir+"/file") != task {
				t.Error("the prompt was changed on its way")
			}
			if got, want := b.read(t, dir+"/env"), "T-AAAAAAAA create "+b.Workspace+" "+b.Home+"\n"; got != want {
				t.Errorf("environment %q, want %q", got, want)
			}
			if got := b.read(t, filepath.Join(b.OutDir, AgentStdout)); got != "440\n" {
				t.Errorf("the prompt's mode is %q", got)
			}
			path := strings.TrimSpace(b.read(t, dir+"/path"))
			if exists(path) || exists(filepath.Dir(path)) || strings.HasPrefix(path, b.Workspace) {
				t.Errorf("the prompt's file %s is still there or in the workspace", path)
			}
			if left, err := os.ReadDir(b.Workspace); err != nil || len(left) > 0 {
				t.Errorf("the prompt did something: %v, %v", left, err)
			}
		})
	}
}

func TestAgentThatNeverReadsItsPrompt(t *testing.T) {
	t.Parallel()
	b := newBox(t, "exit 0")
	b.Order.Task = strings.Repeat("x", workorder.MaxTask)
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
}

func TestExitOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run    []string
		status workorder.Status
		code   int
		reason workorder.ReasonCode
		named  string
	}{
		"good":             {[]string{"exit 0"}, workorder.StatusSuccess, 0, "", ""},
		"bad":              {[]string{"echo hello; echo broken >&2; exit 3"}, workorder.StatusFailed, 3, workorder.ReasonAgent, "broken"},
		"its own error":    {[]string{`echo '{"type":"agent.error","text":"no model"}'; exit 4`}, workorder.StatusFailed, 4, workorder.ReasonAgent, "no model"},
		"segfault":         {[]string{"kill -SEGV $$"}, workorder.StatusFailed, 139, workorder.ReasonAgent, "SIGSEGV"},
		"killed":           {[]string{"kill -KILL $$"}, workorder.StatusFailed, 137, workorder.ReasonAgent, "SIGKILL"},
		"child's segfault": {[]string{"sh -c 'kill -SEGV $$'; exit $?"}, workorder.StatusFailed, 139, workorder.ReasonAgent, "SIGSEGV"},
		"list":             {[]string{"sh", "-c", "exit $1", "sh", "5"}, workorder.StatusFailed, 5, workorder.ReasonAgent, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, c.run...)
			got := Agent(t.Context(), b.Config)
			check(t, got, c.status, workorder.EndedByAgent, c.reason, c.named)
			if got.Agent.ExitCode == nil || *got.Agent.ExitCode != c.code || got.Agent.Harness != "command" {
				t.Errorf("agent %+v, want exit code %d", got.Agent, c.code)
			}
			end := b.of(workorder.EventAgentFinished)
			if len(b.of(workorder.EventAgentStarted)) != 1 || len(end) != 1 || *end[0].ExitCode != c.code {
				t.Errorf("events %+v", b.events)
			}
		})
	}
}

func TestAgentThatCannotStart(t *testing.T) {
	t.Parallel()
	b := newBox(t, "no-such-agent", "x")
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonNoAgent, "no-such-agent")
	if got.Agent.ExitCode != nil {
		t.Error("an agent that never ran has no exit code")
	}
	for what, command := range map[string]string{
		"not there":      "no-such-agent --task x",
		"not executable": "./text",
		"no interpreter": "exec ./script",
	} {
		b := newBox(t, command)
		if err := os.WriteFile(filepath.Join(b.Workspace, "script"), []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.Workspace, "text"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Agent(t.Context(), b.Config); got.Reasons.Code() != workorder.ReasonNoAgent || got.Status != workorder.StatusFailed {
			t.Errorf("%s: %s, %+v", what, got.Status, got.Reasons)
		}
	}
	if got.Reasons.Code() != workorder.ReasonNoAgent {
		t.Errorf("%+v", got.Reasons)
	}
	b = newBox(t, `echo '{"type":"agent.usage","usage":{"input_tokens":5}}'; exit 127`)
	if got := Agent(t.Context(), b.Config); got.Reasons.Code() != workorder.ReasonAgent {
		t.Errorf("an agent that worked: %+v", got.Reasons)
	}
	b = newBox(t, "x")
	b.Order.Harness.Name = "nope"
	check(t, Agent(t.Context(), b.Config), workorder.StatusError, workorder.EndedByOrder, workorder.ReasonNoAgent, workorder.Harnesses()...)
	if Check(b.Order, b.Env) == nil {
		t.Error("the same must be found early")
	}
	b.Order.Harness = workorder.Harness{Name: "claude-code"}
	check(t, Agent(t.Context(), b.Config), workorder.StatusError, workorder.EndedByOrder, workorder.ReasonNoAgent, "ANTHROPIC_API_KEY")
	if err := Check(b.Order, append(b.Env, "ANTHROPIC_API_KEY=x")); err != nil {
		t.Error(err)
	}
}

func TestOOMIsToldApart(t *testing.T) {
	t.Parallel()
	b := newBox(t, `kill -KILL $$`)
	kills := 1
	b.OOMKills = func() int { kills++; return kills }
	check(t, Agent(t.Context(), b.Config), workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonMemory, "limits.memory")
}

func TestEventsAndUsage(t *testing.T) {
	t.Parallel()
	b := newBox(t, `echo starting
		echo '{"type":"agent.text","text":"hello"}'
		echo '{"type":"step_finish","cost":0.25,"tokens":{"input":7,"output":1}}'
		echo '{"type":"not an event"'
		printf 'no newline'; echo warn >&2`)
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusSuccess, workorder.EndedByAgent, "")
	if got.Usage.CostUSD == nil || *got.Usage.CostUSD != 0.25 || got.Usage.InputTokens != 7 || got.Agent.Final != "hello" {
		t.Errorf("got %+v", got)
	}
	var out, errs []string
	for _, e := range b.of(workorder.EventAgentOutput) {
		if e.Name == "stdout" {
			out = append(out, e.Text)
		} else {
			errs = append(errs, e.Name+": "+e.Text)
		}
	}
	if !slices.Equal(out, []string{"starting", `{"type":"not an event"`, "no newline"}) || !slices.Equal(errs, []string{"stderr: warn"}) {
		t.Errorf("output events %q, %q", out, errs)
	}
	if len(b.of(workorder.EventAgentText)) != 1 || len(b.of(workorder.EventAgentUsage)) != 1 {
		t.Errorf("events %+v", b.events)
	}
}

func TestSecretsShowNowhere(t *testing.T) {
	t.Parallel()
	const canary = "cnry-0123456789-abcdef"
	b := newBox(t, `printf 'cnry-0123456789-'; sleep 0.05; echo abcdef; echo "key $K" >&2
		printf '{"type":"agent.text","text":"%s"}\n' "$K"; printf '{"type":"agent.tool","name":"%s","text":"x"}\n' "$K"; exit 1`)
	b.Env = append(b.Env, "K="+canary)
	b.Redact = redact.Named(map[string]string{"K": canary})
	b.Order.Validate = []workorder.Check{{Name: "v", Run: `echo "$K"; exit 1 # ` + canary}}
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent, "[redacted:K]")
	for _, v := range Validate(t.Context(), b.Config) {
		if strings.Contains(v.Command+v.Tail, canary) {
			t.Errorf("validation %+v", v)
		}
	}
	for _, e := range b.events {
		if strings.Contains(e.Text+e.Name, canary) {
			t.Errorf("event %+v", e)
		}
	}
	if strings.Contains(got.Reasons.String()+got.Agent.Final, canary) {
		t.Errorf("outcome %+v", got)
	}
	for _, log := range []string{AgentStdout, AgentStderr, "logs/validate-v.log"} {
		if s := b.read(t, filepath.Join(b.OutDir, log)); strings.Contains(s, canary) || !strings.Contains(s, "[redacted:K]") {
			t.Errorf("%s: %q", log, s)
		}
	}
}

func TestBudgetStopsTheAgent(t *testing.T) {
	t.Parallel()
	b := newBox(t, `echo '{"type":"step_finish","cost":0.6}'; echo '{"type":"step_finish","cost":0.6}'; sleep 600`)
	budget := 1.0
	b.Order.MaxBudgetUSD = &budget
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, "$1.2,", "max_budget_usd", "$1")
	if *got.Usage.CostUSD != 1.2 {
		t.Errorf("usage %+v", got.Usage)
	}
	// Even when it is over before it can be stopped.
	b.Order.Harness.Command = []string{`echo '{"type":"agent.usage","usage":{"cost_usd":1.5}}'`}
	check(t, Agent(t.Context(), b.Config), workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, "$1.5")
	b.Order.Harness.Command = []string{`echo '{"type":"agent.usage","usage":{"cost_usd":1}}'`}
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	b.Order.Harness.Command = []string{`true`}
	got = Agent(t.Context(), b.Config)
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "max_budget_usd") {
		t.Errorf("an unwatched budget must be said: %q", got.Warnings)
	}
}

func TestStopping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause  error
		script string
		status workorder.Status
		by     workorder.EndedBy
		reason workorder.ReasonCode
	}{
		"timeout":             {ErrTimeout, "touch ../up; sleep 600", workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout},
		"ignores TERM":        {ErrTimeout, "trap '' TERM; touch ../up; while :; do sleep 1; done", workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout},
		"exits 0 on TERM":     {ErrInterrupted, "trap 'exit 0' TERM; touch ../up; while :; do sleep 0.02; done", workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal},
		"someone else's word": {errors.New("x"), "touch ../up; sleep 600", workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, c.script)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				waitFor(t, "start", func() bool { return exists(filepath.Join(filepath.Dir(b.Workspace), "up")) })
				cancel(c.cause)
			}()
			check(t, Agent(ctx, b.Config), c.status, c.by, c.reason)
		})
	}
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		check(t, Agent(ctx, newBox(t, "sleep 600").Config), workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout, "timeout_minutes")
	})
}

// patient gives the agent so long for its last words: all that it may need on a slow machine.
func (b *box) patient(grace time.Duration) {
	lim := b.limits()
	lim.grace = grace
	b.bounds = &lim
}

// fakeClaude puts a program called claude in front of PATH.
func fakeClaude(t *testing.T, b *box, script string) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	b.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=sk-test"}
	b.Order.Harness = workorder.Harness{Name: "claude-code"}
}

func TestClaudeIsInterruptedFirst(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	fakeClaude(t, b, `trap 'echo "{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,\"session_id\":\"s\",\"total_cost_usd\":0.5,\"num_turns\":2}"; exit 0' INT
		trap '' TERM; touch ../up; while :; do sleep 0.02; done`)
	b.patient(time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitFor(t, "start", func() bool { return exists(filepath.Join(filepath.Dir(b.Workspace), "up")) })
		cancel(ErrTimeout)
	}()
	got := Agent(ctx, b.Config)
	check(t, got, workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout)
	if got.Usage.CostUSD == nil || *got.Usage.CostUSD != 0.5 || got.Agent.Turns != 2 {
		t.Errorf("the result after the interrupt was not read: %+v", got)
	}
}

func TestClaudeIsTerminatedNext(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	fakeClaude(t, b, `trap '' INT; trap 'touch ../term; exit 143' TERM
		mkdir -p "$CLAUDE_CONFIG_DIR/projects/-w"; while [ "$1" != --session-id ]; do shift; done
		printf '{"type":"cost-state","totalCostUSD":0.1}\n{"type":"cost-state","totalCostUSD":0.75}\n' >"$CLAUDE_CONFIG_DIR/projects/-w/$2.jsonl"
		touch ../up; while :; do sleep 0.02; done`)
	b.patient(10 * time.Second) // half of it goes by before SIGTERM comes
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitFor(t, "start", func() bool { return exists(filepath.Join(filepath.Dir(b.Workspace), "up")) })
		cancel(ErrInterrupted)
	}()
	got := Agent(ctx, b.Config)
	check(t, got, workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal)
	if !exists(filepath.Join(filepath.Dir(b.Workspace), "term")) {
		t.Error("it was killed without SIGTERM")
	}
	if got.Usage.CostUSD == nil || *got.Usage.CostUSD != 0.75 || !exists(filepath.Join(b.OutDir, AgentTranscript)) {
		t.Errorf("the transcript was not read: %+v", got.Usage)
	}
}

func TestTranscriptThatIsATrap(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(secret, []byte("root:x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]string{"link": "ln -s " + secret + ` "$f"`, "pipe": `mkfifo "$f"`, "folder": `mkdir "$f"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			fakeClaude(t, b, `mkdir -p "$CLAUDE_CONFIG_DIR/projects/-w"; while [ "$1" != --session-id ]; do shift; done; f="$CLAUDE_CONFIG_DIR/projects/-w/$2.jsonl"; `+place)
			got := Agent(t.Context(), b.Config)
			if exists(filepath.Join(b.OutDir, AgentTranscript)) || len(got.Warnings) == 0 {
				t.Errorf("it was followed; warnings %q", got.Warnings)
			}
		})
	}
}

func TestClaudeWithAWrongKeyIsStopped(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	fakeClaude(t, b, `echo '{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error_status":401,"error":"authentication_failed","session_id":"s"}'; sleep 600`)
	check(t, Agent(t.Context(), b.Config), workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonModelKey)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestChildrenThatHoldTheOutputOpen(t *testing.T) {
	t.Parallel()
	// One stays in the agent's group, one in a session of its own.
	b := newBox(t, `sleep 600 & echo $! >../same; setsid sh -c 'echo $$ >../own; exec sleep 600' & 
		while ! [ -s ../own ]; do sleep 0.01; done; for i in 1 2 3 4 5 6 7 8 9; do (exit 0) & done; echo done; exit 0`)
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	dir := filepath.Dir(b.Workspace)
	pid := func(name string) int {
		n, err := strconv.Atoi(strings.TrimSpace(b.read(t, dir+"/"+name)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// Without a user of its own there is no sweep: the test does it.
	defer func() { _ = syscall.Kill(pid("own"), syscall.SIGKILL) }()
	waitFor(t, "the end of the agent's group", func() bool {
		st, err := proc.ReadStat(pid("same"))
		return err != nil || st.Zombie || !alive(pid("same"))
	})
	if got := b.read(t, filepath.Join(b.OutDir, AgentStdout)); got != "done\n" {
		t.Errorf("output %q", got)
	}
}

func TestFloodIsBounded(t *testing.T) {
	for name, line := range map[string]string{
		"text":  strings.Repeat("flood of output ", 8),
		"event": `{"type":"agent.text","text":"` + strings.Repeat("flood of events ", 120) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, `yes "$LINE" | head -c `+strconv.Itoa(floodBytes)+`; echo; echo the end; yes "$LINE" | head -c 20000000 >&2; exit 3`)
			b.Env = append(b.Env, "LINE="+line)
			b.Redact = redact.Named(map[string]string{"A": "secret-value-of-some-length", "B": "floodgate"})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			check(t, Agent(t.Context(), b.Config), workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent, "3")
			runtime.ReadMemStats(&after)
			if grown := int64(after.Sys) - int64(before.Sys); grown > 64<<20 {
				t.Errorf("memory grew by %d MiB", grown>>20)
			}
			st, err := os.Stat(filepath.Join(b.OutDir, AgentStdout))
			if err != nil || st.Size() > logHead+logTail+1000 {
				t.Errorf("log of %d bytes, %v", st.Size(), err)
			}
			log := b.read(t, filepath.Join(b.OutDir, AgentStdout))
			mark, _, _ := strings.Cut(droppedMark, "%d")
			if !strings.HasPrefix(log, line+"\n") || !strings.HasSuffix(log, "\nthe end\n") || strings.Count(log, mark) != 1 {
				t.Error("the log has not both ends and a mark between")
			}
			bytes, notes := 0, 0
			for _, e := range b.events {
				bytes += len(e.Text)
				if len(e.Text) > workorder.MaxEventText {
					t.Errorf("event with %d bytes", len(e.Text))
				}
				if strings.Contains(e.Text, AgentStdout) { // where all of it is
					notes++
				}
			}
			if bytes > 16<<20 || notes == 0 {
				t.Errorf("%d events with %d bytes, %d notes of what was dropped", len(b.events), bytes, notes)
			}
		})
	}
}

func TestHugeLine(t *testing.T) {
	t.Parallel()
	b := newBox(t, `head -c 20000000 /dev/zero | tr '\0' x; echo; echo '{"type":"agent.text","text":"still here"}'`)
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	out := b.of(workorder.EventAgentOutput)
	if len(out) != 1 || !strings.Contains(out[0].Text, "20000000") || !strings.Contains(out[0].Text, " xxx") || len(b.of(workorder.EventAgentText)) != 1 {
		t.Errorf("%d output events", len(out))
	}
}

func TestFullDiskDoesNotStopTheAgent(t *testing.T) {
	t.Parallel()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	l := &capLog{f: f, head: 10, tail: 10}
	if n, err := l.Write(bytes.Repeat([]byte("x"), 100)); n != 100 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("closed with %v", err)
	}
}
