//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// An agent of a template runs in tmux, is told of its sandbox where git does not see it, and has what nobody else has; it goes on when its terminal is gone.
func TestStart(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	const claudeMD = "the project's own\n"
	if err := os.WriteFile(filepath.Join(repo, "CLAUDE.md"), []byte(claudeMD), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "told")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "tpl.yaml"), []byte(`
name: tpl
description: what it is for
harness: {name: command, command: [sleep, "1000"]}
agents:
  one: {name: command, command: 'env >"$HOME/agent.env"; cat "$SANDBOX_AGENT_BRIEFING_FILE" >"$HOME/told"; echo "$SANDBOX_AGENT_PROMPT" >said; sleep 1000'}
  broken: {name: command, command: "echo its last words; exit 3"}
secrets:
  ANTHROPIC_API_KEY: env://MODEL_KEY
  ONLY_AGENTS: {from: env://ONLY, for: agent}
network: {mode: restricted, allow: [allowed.example]}
init: ["false", "touch $HOME/init"]
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "bad.yaml"), []byte("name: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	u.env = append(u.env, "MODEL_KEY=sk-the-real-key", "ONLY=for-agents-alone", "SANDBOX_AGENT_PROJECTS_DIR="+folder)
	ok := func(code int, args ...string) call {
		t.Helper()
		c := u.run("", args...)
		if c.code != code {
			t.Errorf("%q: exit code %d, not %d: %s", args, c.code, code, c.stderr)
		}
		return c
	}
	list := jsonOf[[]struct {
		Name   string
		Agents []string
	}](u, "templates")
	if len(list) != 1 || list[0].Name != "tpl" || strings.Join(list[0].Agents, ",") != "one,broken" {
		t.Errorf("%+v", list)
	}
	ok(6, "templates", "--strict")
	e := u.claim(fmt.Sprintf("start-%d", os.Getpid()))
	ok(3, "up", e, "-p", "none", "--repo", ".")
	ok(0, "up", e, "-p", "tpl", "--repo", ".")
	sh := func(script string) string {
		t.Helper()
		return strings.TrimSpace(ok(0, "exec", e, "--", "sh", "-c", script).stdout)
	}
	sh("test -e $HOME/init")
	told := sh("cat .claude/sandbox-agent.md")
	if !strings.Contains(told, "allowed.example") || !strings.Contains(told, "sandbox/"+e) {
		t.Error(told)
	}
	ok(0, "network", e, "none")
	if got := sh("cat .claude/sandbox-agent.md"); strings.Contains(got, "allowed.example") {
		t.Error(got)
	}
	ok(0, "network", e, "restricted", "--allow", "allowed.example")
	ok(0, "ports", e, "8123")
	if got := sh("cat .claude/sandbox-agent.md"); !strings.Contains(got, "8123") {
		t.Error(got)
	}
	ok(0, "ports", e, "--remove", "8123")
	if got := sh("cat .claude/sandbox-agent.md"); got != told {
		t.Error(got)
	}
	if got := sh("git status --porcelain; sha256sum CLAUDE.md"); got != fmt.Sprintf("%x  CLAUDE.md", sha256.Sum256([]byte(claudeMD))) {
		t.Error(got)
	}
	ok(2, "start", e, "none")
	if c := ok(1, "start", e, "broken"); !strings.Contains(c.stderr, "its last words") {
		t.Error(c.stderr)
	}
	ok(0, "start", e, "one", "--prompt", "do 'it'")
	if got := sh("cat said"); got != "do 'it'" {
		t.Error(got)
	}
	if got := sh(`grep -c "^ONLY_AGENTS=for-agents-alone$" $HOME/agent.env; env | grep -c ONLY_AGENTS; cmp $HOME/told .claude/sandbox-agent.md; grep -c sk-the-real-key $HOME/agent.env; tmux show -gv history-limit; ls -A /dev/shm`); got != "1\n0\n0\n50000" {
		t.Errorf("%q", got)
	}
	if c := ok(0, "start", e, "one"); !strings.Contains(c.stdout, "already") {
		t.Error(c.stdout)
	}
	// Who looks is killed; the agent is not.
	by := u.start("", "shell", e, "--", "script", "-qc", "tmux attach -t agent:one", "/dev/null")
	time.Sleep(500 * time.Millisecond)
	by.Signal(syscall.SIGKILL)
	by.wait()
	if got := sh("tmux list-windows -t agent -F '#{window_name}'"); !strings.Contains(got, "one") {
		t.Error(got)
	}
	u.env = u.env[:len(u.env)-2]
	u.env = append(u.env, "SANDBOX_AGENT_PROJECTS_DIR="+folder)
	if c := ok(6, "start", e); !strings.Contains(c.stderr, "ONLY") {
		t.Error(c.stderr)
	}
	ok(0, "delete", "--force", e)
}

// What ended by nobody's wish is started again, what somebody stopped is not, and what changes without a command is committed.
func TestMonitor(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	image := strings.TrimSpace(u.run("", "image", "build").stdout)
	killed, stopped := u.claim(fmt.Sprintf("killed-%d", os.Getpid())), u.claim(fmt.Sprintf("stopped-%d", os.Getpid()))
	for _, name := range []string{killed, stopped} {
		if c := u.run("", "up", name, "--repo", ".", "--runtime", "container", "--image", image); c.code != 0 {
			t.Fatalf("exit code %d: %s", c.code, c.stderr)
		}
	}
	m := u.start("", "monitor", "--interval", "1s", "--auto-restart", "--json")
	events := func() (all []struct{ Sandbox, State, Commit string }) {
		for line := range strings.Lines(m.out.String()) {
			var e struct{ Sandbox, State, Commit string }
			if json.Unmarshal([]byte(line), &e) == nil {
				all = append(all, e)
			}
		}
		return all
	}
	waitFor := func(name, state string, committed bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			for _, e := range events() {
				if e.Sandbox == name && e.State == state && (e.Commit != "") == committed {
					return
				}
			}
		}
		t.Fatalf("%s was never %s: %s", name, state, m.out.String())
	}
	waitFor(killed, "healthy", false)
	waitFor(stopped, "healthy", false)
	if c := u.run("", "exec", killed, "--background", "--", "sh", "-c", "echo by itself >g"); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
	waitFor(killed, "healthy", true)
	if got := gittest.Git(t, repo, "show", "sandbox/"+killed+":g"); got != "by itself" {
		t.Error(got)
	}
	if c := u.run("", "stop", stopped); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
	waitFor(stopped, "stopped", false)
	if err := eng.ContainerKill(t.Context(), "sandbox-agent-sandbox-"+killed, "KILL"); err != nil {
		t.Fatal(err)
	}
	waitFor(killed, "restarted", false)
	m.Signal(syscall.SIGTERM)
	if c := m.wait(); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
	if c := u.run("", "status", stopped, "--json"); !strings.Contains(c.stdout, `"stopped"`) {
		t.Errorf("exit code %d, %s", c.code, c.stdout)
	}
	history := u.run("", "inspect", killed, "--history")
	if !strings.Contains(history.stdout, `"ended"`) || !strings.Contains(history.stdout, `"started"`) || !strings.Contains(history.stdout, `"restarted"`) {
		t.Error(history.stdout)
	}
	if c := u.run("", "delete", "--force", "--all"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}
