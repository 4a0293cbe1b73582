package projects_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

// TestHarnessKeys: a harness that cannot reach a model is told of before anything starts, with
// the key that it wants.
func TestHarnessKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ yaml, want string }{
		{"harness: claude-code", "ANTHROPIC_API_KEY"},
		{"harness: codex", "OPENAI_API_KEY"},
		{"harness: opencode", "OPENAI_API_KEY"},
		{"harness: {name: opencode, model: anthropic/claude-sonnet-4-5}", "ANTHROPIC_API_KEY"},
		{"harness: {name: codex, model: gpt-6.1-sol}\nsecrets: {ANTHROPIC_API_KEY: env://A}", "OPENAI_API_KEY"},
		{"harness: {name: opencode, model: openai/gpt-6.1-sol}\nsecrets: {ANTHROPIC_API_KEY: env://A}", "OPENAI_API_KEY"},
		{"harness: codex\nsecrets: {CODEX_API_KEY: env://A}", ""},
		{"harness: codex\ngateway: {openai: {base_url: 'http://localhost:1'}}", ""},
		{"harness: {name: codex, args: [--oss]}", ""},
		{"harness: opencode\nsecrets: {ANTHROPIC_API_KEY: env://A}", ""},
		{"harness: {name: opencode, model: ollama/qwen3}", ""},
		{"harness: {name: command, command: 'true'}", ""},
	} {
		file := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(file, []byte("name: x\n"+c.yaml+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := projects.Load(file, projects.LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.yaml, err)
			continue
		}
		if p.LacksKey() != (c.want != "") {
			t.Errorf("%s: lacks a key: %v", c.yaml, p.LacksKey())
		}
		if c.want != "" && !strings.Contains(p.KeyHint(), c.want) {
			t.Errorf("%s: hint %q", c.yaml, p.KeyHint())
		}
	}
}
