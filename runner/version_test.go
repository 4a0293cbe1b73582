package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// claudeScript has a stand-in for the CLI.
func claudeScript(t *testing.T, script string) *box {
	t.Helper()
	b := newBox(t)
	b.Order.Harness = workorder.Harness{Name: "claude-code"}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	b.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=key"}
	return b
}

func TestVersionThatMustBeUsed(t *testing.T) {
	t.Parallel()
	const script = `[ "$1" = --version ] && { echo "2.1.5 (Claude Code)"; exit; }; touch ran
		echo '{"type":"result","subtype":"success","session_id":"s","result":"done"}'`
	b := claudeScript(t, script)
	b.Order.Harness.Version = "2.1.4"
	check(t, Agent(t.Context(), b.Config), workorder.StatusError, workorder.EndedByOrder, workorder.ReasonNoAgent, "2.1.4", "harness.version", "2.1.5")
	if exists(filepath.Join(b.Workspace, "ran")) || len(b.of(workorder.EventAgentStarted)) > 0 {
		t.Error("the agent of another version was started")
	}
	b.Order.Harness.Version = "2.1.5"
	check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")

	broken := claudeScript(t, "echo no such luck >&2; exit 3")
	broken.Order.Harness.Version = "2.1.5"
	check(t, Agent(t.Context(), broken.Config), workorder.StatusError, workorder.EndedByOrder, workorder.ReasonNoAgent, "no such luck")

	c := newBox(t, "true")
	c.Order.Harness.Version = "1"
	if err := Check(c.Order, nil); err == nil {
		t.Error("an unchecked version was accepted")
	}
}

// TestStoppedAgentHasNoExitCode: one that exits with 0 because it was stopped
// does not read "failed, exit 0".
func TestStoppedAgentHasNoExitCode(t *testing.T) {
	t.Parallel()
	b := claudeScript(t, `trap 'exit 0' INT
		echo '{"type":"system","subtype":"api_retry","error_status":401,"error":"authentication_failed","session_id":"s"}'
		while :; do sleep 0.01; done`)
	check(t, Agent(t.Context(), b.Config), workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonModelKey)
	if ev := b.of(workorder.EventAgentFinished); len(ev) != 1 || ev[0].ExitCode != nil {
		t.Errorf("got %+v", ev)
	}
}
