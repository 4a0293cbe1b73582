package agentlogin_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestRead reads logins as their programs keep them. What a file has is in no error.
func TestRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	claude := func(in time.Duration) string {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"cnry-access","refreshToken":"cnry-refresh","expiresAt":%d,"scopes":["user:inference","user:profile"],"subscriptionType":"max"}}`, now.Add(in).UnixMilli())
	}
	const oauth, gpt, ant = "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"
	const opencode = `{"anthropic":{"type":"oauth","access":"cnry","refresh":"cnry","expires":1},"openai":{"type":"api","key":"cnry-key"}}`
	for _, c := range []struct {
		harness, name, file, content string
		token                        string // "" means an error
		none, expired                bool
	}{
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json", content: claude(time.Hour), token: "cnry-access"},
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json", content: claude(0), expired: true},
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json", content: strings.Replace(claude(time.Hour), "user:inference", "org:create_api_key", 1)},
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json", content: `{"mcpOAuth":{}}`, none: true},
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json", content: "cnry{"},
		{harness: "claude-code", name: oauth, file: "elsewhere", none: true},
		{harness: "claude-code", name: oauth, file: ".claude/.credentials.json/folder"},
		{harness: "codex", name: gpt, file: ".codex/auth.json", content: `{"OPENAI_API_KEY":"cnry-key","tokens":null,"last_refresh":null}`, token: "cnry-key"},
		{harness: "codex", name: gpt, file: ".codex/auth.json", content: `{"OPENAI_API_KEY":null,"tokens":{"access_token":"cnry","account_id":"a"}}`},
		{harness: "codex", name: gpt, file: ".codex/auth.json", content: `{}`, none: true},
		{harness: "opencode", name: gpt, file: ".local/share/opencode/auth.json", content: opencode, token: "cnry-key"},
		{harness: "opencode", name: ant, file: ".local/share/opencode/auth.json", content: opencode},
		{harness: "opencode", name: ant, file: ".local/share/opencode/auth.json", content: `{}`, none: true},
		{harness: "command", name: gpt, file: "x", none: true},
	} {
		home := t.TempDir()
		file := filepath.Join(home, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(c.content), 0o600)); err != nil {
			t.Fatal(err)
		}
		getenv := func(name string) string { return map[string]string{"HOME": home}[name] }
		l, err := agentlogin.Read(getenv, c.harness, c.name, now)
		what := c.harness + " with " + c.content
		if c.token != "" {
			if err != nil || l.Token != c.token || l.File != file || l.Name != c.name {
				t.Errorf("%s: %+v, %v", what, l, err)
			}
			continue
		}
		_, expired := errors.AsType[*agentlogin.ExpiredError](err)
		if err == nil || expired != c.expired || errors.Is(err, agentlogin.ErrNoLogin) != c.none || strings.Contains(err.Error(), "cnry") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPlaces: a login is looked for where its program has it, wherever the user moved that.
func TestPlaces(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"HOME": "/home/me"}
	getenv := func(name string) string { return vars[name] }
	at := func(want ...string) {
		t.Helper()
		for i, harness := range []string{workorder.HarnessClaudeCode, workorder.HarnessCodex, workorder.HarnessOpencode} {
			if got, err := agentlogin.File(getenv, harness); err != nil || got != want[i] {
				t.Errorf("%s: %s, %v, want %s", harness, got, err, want[i])
			}
		}
	}
	at("/home/me/.claude/.credentials.json", "/home/me/.codex/auth.json", "/home/me/.local/share/opencode/auth.json")
	vars["CLAUDE_CONFIG_DIR"], vars["CODEX_HOME"], vars["XDG_DATA_HOME"] = "/a", "/b", "/c"
	at("/a/.credentials.json", "/b/auth.json", "/c/opencode/auth.json")
	delete(vars, "HOME")
	delete(vars, "CODEX_HOME")
	if _, err := agentlogin.File(getenv, workorder.HarnessCodex); !errors.Is(err, agentlogin.ErrNoLogin) {
		t.Error(err)
	}
	for _, harness := range projects.Logins() {
		if _, err := agentlogin.File(func(string) string { return "/x" }, harness); err != nil {
			t.Errorf("a project can name the login of %s: %v", harness, err)
		}
	}
}
