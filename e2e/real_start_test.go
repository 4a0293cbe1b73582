//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// The real programs at a terminal work on their prompt without a question, with a key that the box does not have, and again once that is another. They are told what is so in the sandbox.
func TestRealAgentsAtATerminal(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t, "CLAUDES_KEY="+claudeKey, "OPENAIS_KEY="+openaiKey)
	repo := u.newRepo()
	script := func(replies ...reply) string {
		b, err := json.Marshal(replies)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const says = `case "$(env)" in *sk-right*) echo it;; *) echo none;; esac >%s`
	for name, content := range map[string]string{
		"model.py": modelServer, "openai.py": openaiServer,
		"anthropic.json": script(reply{Tool: "Bash", Input: map[string]string{"command": fmt.Sprintf(says, "claude"), "description": "work"}}, reply{Text: "That is all from Claude."}),
		"openai.json": script(codexSays(fmt.Sprintf(says, "codex")), reply{Text: "That is all from Codex."},
			opencodeSays(fmt.Sprintf(says, "opencode")), reply{Text: "That is all from opencode."}),
		"opencode.json": `{"provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:1/v1"}}}}`, // a server that a repository names is not used
	} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "models")
	template := u.project(`
name: terminal
harness: {name: claude-code, model: ` + claudeModel + `}
agents:
  second: {name: codex, model: ` + openaiModel + `}
  third: {name: opencode, model: ` + openaiModel + `}
env:
  ANTHROPIC_BASE_URL: http://127.0.0.1:8377
gateway:
  openai: {base_url: "http://127.0.0.1:8378/v1"}
secrets:
  ANTHROPIC_API_KEY: env://CLAUDES_KEY
  OPENAI_API_KEY: env://OPENAIS_KEY
network: {mode: restricted}
`)
	e := u.claim(fmt.Sprintf("terminal-%d", os.Getpid()))
	ok := func(args ...string) string {
		t.Helper()
		c := u.run("", args...)
		if c.code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, c.code, c.stderr)
		}
		return c.stdout
	}
	ok("up", e, "-p", template, "--repo", ".")
	serve := func() {
		t.Helper()
		ok("exec", e, "--background", "--", "python3", "model.py", "8377", "anthropic.json", "/tmp/anthropic.jsonl")
		ok("exec", e, "--background", "--", "python3", "openai.py", "8378", "openai.json", "/tmp/openai.jsonl")
		ok("exec", e, "--", "sh", "-c", "for port in 8377 8378; do until curl -fs -o /dev/null http://127.0.0.1:$port/; do sleep 0.1; done; done")
	}
	start := func(agent, prompt, last string) {
		t.Helper()
		ok("start", e, agent, "--prompt", prompt, "--detach")
		for until := time.Now().Add(4 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
			screen := ok("exec", e, "--", "tmux", "capture-pane", "-p", "-t", "agent:"+agent)
			if strings.Contains(screen, last) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%s does not work:\n%s", agent, screen)
			}
		}
	}
	serve()
	start("claude-code", "-say it", "That is all from Claude.")
	start("second", "-say it", "That is all from Codex.")
	start("third", "-say it", "That is all from opencode.")
	for _, name := range []string{"claude", "codex", "opencode"} {
		if got := ok("exec", e, "--", "cat", name); got != "none\n" {
			t.Errorf("%s: the key is in its environment: %q", name, got)
		}
	}
	if got := ok("exec", e, "--", "sh", "-c", "grep -rl sandbox-agent-placeholder $HOME /tmp 2>/dev/null || :"); got != "" {
		t.Errorf("what is in the place of a key is kept in %s", got)
	}
	calls := ok("exec", e, "--", "cat", "/tmp/openai.jsonl")
	for what, n := range map[string]int{"Read /workspace/.claude/sandbox-agent.md first": 2, "Instructions from: /workspace/.claude/sandbox-agent.md": 2, `"-say it"`: 4} {
		if got := strings.Count(calls, what); got < n {
			t.Errorf("%q reached the model %d times: %s", what, got, calls)
		}
	}
	// A box that was stopped has other keys.
	ok("stop", e)
	serve()
	start("claude-code", "go on", "That is all from Claude.")
	if got := ok("exec", e, "--", "sh", "-c", `grep -c '"go on"' /tmp/anthropic.jsonl`); got == "0\n" {
		t.Error("the second prompt did not reach the model")
	}
	ok("delete", "--force", e)
}
