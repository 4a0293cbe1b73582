package runner

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const untilNoticed = `while ! [ -e "$SANDBOX_AGENT_NOTICE_FILE" ]; do sleep 0.02; done; cat "$SANDBOX_AGENT_NOTICE_FILE" >../told; stat -c %a "$(dirname "$SANDBOX_AGENT_NOTICE_FILE")" >../mode`

func TestNoticeOfTime(t *testing.T) {
	t.Parallel()
	b := newBox(t, `[ -e "$SANDBOX_AGENT_NOTICE_FILE" ] && echo too early; `+untilNoticed)
	b.Deadline = time.Now().Add(2 * time.Second)
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	told := b.read(t, filepath.Join(b.Workspace, "../told"))
	ev := b.of(workorder.EventNotice)
	if len(ev) != 1 || ev[0].Status != "ok" || ev[0].Text+"\n" != told {
		t.Errorf("told %q, events %+v", told, ev)
	}
	for _, want := range []string{"80 %", " 2s,"} {
		if !strings.Contains(told, want) {
			t.Errorf("told %q, want %q in it", told, want)
		}
	}
	if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); out != "" {
		t.Errorf("output %q", out)
	}
	if mode := b.read(t, filepath.Join(b.Workspace, "../mode")); mode != "755\n" {
		t.Errorf("the folder's mode is %s", mode)
	}
}

func TestNoticeOfMoney(t *testing.T) {
	t.Parallel()
	spend := func(usd string) string { return `echo '{"type":"agent.usage","usage":{"cost_usd":` + usd + `}}'; ` }
	b := newBox(t, spend("3.9")+"sleep 0.1; "+`[ -e "$SANDBOX_AGENT_NOTICE_FILE" ] && echo too early; `+spend("4.1")+spend("4.2")+untilNoticed)
	budget := 5.0
	b.Order.MaxBudgetUSD, b.SpentUSD = &budget, 7
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	ev := b.of(workorder.EventNotice)
	if len(ev) != 1 || ev[0].Status != "ok" {
		t.Fatalf("events %+v", ev)
	}
	told := b.read(t, filepath.Join(b.Workspace, "../told"))
	for _, want := range []string{"80 %", "$7.00", "$4.10", "$5.00", "$0.90"} {
		if !strings.Contains(told, want) {
			t.Errorf("told %q, want %q in it", told, want)
		}
	}
	if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); strings.Contains(out, "too early") {
		t.Error("told before it was time")
	}
}

func TestBothNotices(t *testing.T) {
	t.Parallel()
	b := newBox(t, `while ! grep -qs '80 %' "$SANDBOX_AGENT_NOTICE_FILE"; do sleep 0.02; done; echo '{"type":"agent.usage","usage":{"cost_usd":0.9}}'
		while ! grep -qs '[$]1.00' "$SANDBOX_AGENT_NOTICE_FILE"; do sleep 0.02; done; grep -c '80 %' "$SANDBOX_AGENT_NOTICE_FILE"`)
	b.Order.MaxBudgetUSD = new(1.0)
	b.Deadline = time.Now().Add(time.Second)
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	if ev := b.of(workorder.EventNotice); len(ev) != 2 {
		t.Errorf("events %+v", ev)
	}
	if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); !strings.HasSuffix(out, "\n2\n") {
		t.Errorf("output %q", out)
	}
}

func TestAgentThatCannotBeTold(t *testing.T) {
	t.Parallel()
	b := claudeOf(t, `echo '{"type":"system","subtype":"init","session_id":"s"}'; while ! [ -e go ]; do sleep 0.02; done; echo '{"type":"result","subtype":"success","session_id":"s","result":"ok"}'`)
	b.Order.Harness.Args = []string{"--settings", "{}"}
	b.Deadline = time.Now().Add(100 * time.Millisecond)
	go func() {
		waitFor(t, "notice", func() bool { return len(b.of(workorder.EventNotice)) > 0 })
		b.write(t, filepath.Join(b.Workspace, "go"), "")
	}()
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	if ev := b.of(workorder.EventNotice); len(ev) != 1 || ev[0].Status != "error" || !strings.Contains(ev[0].Text, "--settings") {
		t.Errorf("events %+v", ev)
	}
}
