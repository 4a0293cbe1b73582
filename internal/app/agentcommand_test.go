package app

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// everything is all of a command that its program can read.
func everything(t *testing.T, c agentInvocation) string {
	t.Helper()
	all := strings.Join(append(slices.Clone(c.Argv), c.Env...), "\x00")
	for _, content := range c.Files {
		b, err := content(nil)
		if err != nil {
			t.Fatal(err)
		}
		all += "\x00" + string(b)
	}
	return all
}

// Every harness has a line, with its model, its arguments and what it is told.
func TestAgentCommand(t *testing.T) {
	t.Parallel()
	for _, name := range workorder.Harnesses() {
		h := workorder.Harness{Name: name, Model: "m", Args: []string{"--more"}, Command: []string{"mine"}}
		c, err := agentCommand(agentOptions{Harness: h, Prompt: "-do it", Briefing: "told", File: "/w/b.md", Workdir: "/w", Env: map[string]string{"HOME": "/h"}})
		if err != nil {
			t.Fatal(err)
		}
		all := everything(t, c)
		for _, want := range []string{"--more", "-do it"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not in %q", name, want, all)
			}
		}
		if !strings.Contains(all, "told") && !strings.Contains(all, "/w/b.md") {
			t.Errorf("%s is told nothing of the sandbox: %q", name, all)
		}
		if name != workorder.HarnessCommand && !slices.Contains(c.Argv, "m") {
			t.Errorf("%s: %q", name, c.Argv)
		}
	}
	if c, err := agentCommand(agentOptions{Harness: workorder.Harness{Name: "other"}}); err == nil {
		t.Errorf("%+v", c)
	}
}

// Lists of permissions turn the program's own questions on, in the form that it reads.
// Docs: docs/branches.md
func TestAgentPermissions(t *testing.T) {
	t.Parallel()
	may := projects.Permissions{Allow: []string{"Bash(go test:*)"}, Deny: []string{"Bash(git push:*)"}}
	for name, want := range map[string][]string{
		workorder.HarnessClaudeCode: {`"allow":["Bash(go test:*)"]`, `"deny":["Bash(git push:*)"]`},
		workorder.HarnessCodex:      {`prefix_rule(pattern = ["go", "test"], decision = "allow")`, `["git", "push"], decision = "forbidden"`, "untrusted"},
		workorder.HarnessOpencode:   {`"bash":{"*":"ask","go test*":"allow","git push*":"deny"}`, `"edit":"ask"`},
	} {
		o := agentOptions{Harness: workorder.Harness{Name: name}, Env: map[string]string{"HOME": "/h"}, Permissions: may}
		c, err := agentCommand(o)
		if err != nil {
			t.Fatal(err)
		}
		all := everything(t, c)
		for _, s := range want {
			if !strings.Contains(all, s) {
				t.Errorf("%s: %s is not in %q", name, s, all)
			}
		}
		o.Permissions = projects.Permissions{}
		skips, err := agentCommand(o)
		if err != nil || strings.Contains(all, "--dangerously") || strings.Contains(everything(t, skips), "go test") {
			t.Errorf("%s: %+v, %v", name, skips.Argv, err)
		}
	}
	o := agentOptions{Permissions: projects.Permissions{Allow: []string{"WebFetch"}, Deny: []string{"Bash", "Bash(x:*)"}}}
	if all := o.opencodePermissions(); all["bash"] != "deny" || all["webfetch"] != "allow" {
		t.Error(all)
	}
}

// A key is used without a question, at the server that the sandbox names, and never written down.
func TestAgentKeys(t *testing.T) {
	t.Parallel()
	const key = "sk-0123456789-0123456789-0123456789"
	for name, row := range map[string]struct {
		h         workorder.Harness
		env       map[string]string
		no        bool // tools of the provider
		want, not []string
	}{
		"claude":              {workorder.Harness{Name: "claude-code"}, map[string]string{agentkind.AnthropicKey: key, "CLAUDE_CONFIG_DIR": "/c"}, false, []string{`"approved":["` + key[len(key)-20:] + `"]`}, nil},
		"a short key":         {workorder.Harness{Name: "claude-code"}, map[string]string{agentkind.AnthropicKey: "short"}, false, []string{`"approved":["short"]`}, nil},
		"claude without one":  {workorder.Harness{Name: "claude-code"}, nil, false, nil, []string{"approved"}},
		"codex":               {workorder.Harness{Name: "codex"}, map[string]string{agentkind.OpenAIKey: key, "OPENAI_BASE_URL": "http://gate/v1"}, true, []string{`base_url="http://gate/v1"`, `env_key="OPENAI_API_KEY"`, `web_search="disabled"`}, nil},
		"its other key":       {workorder.Harness{Name: "codex"}, map[string]string{agentkind.CodexKey: key}, false, []string{`base_url="https://api.openai.com/v1"`, `env_key="CODEX_API_KEY"`}, []string{"web_search"}},
		"codex without one":   {workorder.Harness{Name: "codex"}, nil, false, nil, []string{"model_provider"}},
		"an own provider":     {workorder.Harness{Name: "codex", Args: []string{"--oss"}}, map[string]string{agentkind.OpenAIKey: key}, false, nil, []string{"model_provider"}},
		"opencode":            {workorder.Harness{Name: "opencode", Model: "gpt"}, map[string]string{agentkind.OpenAIKey: key, agentkind.AnthropicKey: key, "OPENAI_BASE_URL": "http://gate"}, false, []string{"openai/gpt", `"baseURL":"http://gate/v1"`, `"baseURL":"https://api.anthropic.com/v1"`}, nil},
		"opencode, claude":    {workorder.Harness{Name: "opencode", Model: "claude-x"}, map[string]string{agentkind.OpenAIKey: key, agentkind.AnthropicKey: key}, false, []string{"anthropic/claude-x"}, nil},
		"opencode, own model": {workorder.Harness{Name: "opencode", Model: "mine/x"}, map[string]string{agentkind.OpenAIKey: key}, false, []string{"\x00mine/x"}, nil},
	} {
		c, err := agentCommand(agentOptions{Harness: row.h, Workdir: "/w", Env: row.env, NoProviderTools: row.no})
		if err != nil {
			t.Fatal(err)
		}
		all := everything(t, c)
		for _, want := range row.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not in %q", name, want, all)
			}
		}
		for _, not := range append(row.not, key) {
			if strings.Contains(all, not) {
				t.Errorf("%s: %q is in %q", name, not, all)
			}
		}
	}
}

// What Claude Code has in its file stays, also where it cannot be read.
func TestClaudeAnswers(t *testing.T) {
	t.Parallel()
	o := agentOptions{Workdir: "/w", Env: map[string]string{agentkind.AnthropicKey: "new"}}
	b, err := o.claudeAnswers([]byte(`{"own":12345678901234567890,"projects":{"/w":{"cost":2},"/x":{}},"customApiKeyResponses":{"approved":["old"],"rejected":["no"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	again, err := o.claudeAnswers(b)
	if err != nil || string(again) != string(b) {
		t.Errorf("%s, %v", again, err)
	}
	const all = `{"own":12345678901234567890,"hasCompletedOnboarding":true,"bypassPermissionsModeAccepted":true,"customApiKeyResponses":{"approved":["old","new"],"rejected":["no"]},
		"projects":{"/w":{"cost":2,"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true},"/x":{}}}`
	if err := json.Unmarshal([]byte(all), &want); err != nil || !strings.Contains(string(b), "12345678901234567890") {
		t.Fatalf("%s, %v", b, err)
	}
	g, _ := json.Marshal(got)
	if w, _ := json.Marshal(want); string(g) != string(w) {
		t.Errorf("%s, not %s", g, w)
	}
	for _, old := range []string{"{", "[]", "null"} {
		b, err := o.claudeAnswers([]byte(old))
		if err != nil || old != "null" && string(b) != old {
			t.Errorf("%s: %s, %v", old, b, err)
		}
	}
}
