// Package agents knows how agents' programs are started at a terminal: a person is there, and the sandbox protects.
package agents

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Start is what an agent begins with.
type Start struct {
	Harness workorder.Harness
	// Prompt is the first thing that it is told by the user; "" waits for the user.
	Prompt string
	// Briefing is what it is told of the sandbox, and File where that lies in the sandbox.
	Briefing, File string
	// Home and Workdir are the sandbox's.
	Home, Workdir string
}

// Command is a program with its variables, and files that it needs where they are not there yet.
type Command struct {
	Argv  []string
	Env   []string // NAME=value
	Files map[string]string
}

// Line is how the agent's program is started.
func Line(s Start) (Command, error) {
	h := s.Harness
	switch h.Name {
	case workorder.HarnessClaudeCode:
		return claude(s)
	case workorder.HarnessCodex:
		argv := []string{"codex", "--dangerously-bypass-approvals-and-sandbox", "-c", "analytics.enabled=false"}
		return Command{
			Argv:  prompted(model(argv, h), s.Prompt),
			Files: map[string]string{path.Join(s.Home, ".codex", "AGENTS.md"): "Read " + s.File + " first: it says what is so in this sandbox.\n"},
		}, nil
	case workorder.HarnessOpencode:
		config, err := json.Marshal(map[string]any{"instructions": []string{s.File}, "permission": map[string]string{"edit": "allow", "bash": "allow", "webfetch": "allow"}})
		if err != nil {
			return Command{}, err
		}
		argv := model([]string{"opencode"}, h)
		if s.Prompt != "" {
			argv = append(argv, "--prompt="+s.Prompt) // it may begin with a hyphen
		}
		return Command{Argv: argv, Env: []string{"OPENCODE_CONFIG_CONTENT=" + string(config), "OPENCODE_DISABLE_AUTOUPDATE=1"}}, nil
	case workorder.HarnessCommand:
		return Command{Argv: append(append([]string{}, h.Command...), h.Args...), Env: []string{"SANDBOX_AGENT_BRIEFING_FILE=" + s.File, "SANDBOX_AGENT_PROMPT=" + s.Prompt}}, nil
	}
	return Command{}, fmt.Errorf("agent %q: use one of %v", h.Name, workorder.Harnesses())
}

// Login is the file of the home folder in which a program keeps its login.
func Login(harness string) string {
	return map[string]string{
		workorder.HarnessClaudeCode: ".claude/.credentials.json", workorder.HarnessCodex: ".codex/auth.json", workorder.HarnessOpencode: ".local/share/opencode/auth.json",
	}[harness]
}

// claude has no questions of its first start in a sandbox that is made for it.
func claude(s Start) (Command, error) {
	argv := model([]string{"claude", "--dangerously-skip-permissions", "--append-system-prompt", s.Briefing}, s.Harness)
	asked, err := json.Marshal(map[string]any{
		"hasCompletedOnboarding": true, "bypassPermissionsModeAccepted": true,
		"projects": map[string]any{s.Workdir: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
	})
	if err != nil {
		return Command{}, err
	}
	return Command{
		Argv: prompted(argv, s.Prompt), Env: []string{"IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		Files: map[string]string{path.Join(s.Home, ".claude.json"): string(asked)},
	}, nil
}

func model(argv []string, h workorder.Harness) []string {
	if h.Model != "" {
		argv = append(argv, "--model", h.Model)
	}
	return append(argv, h.Args...)
}

func prompted(argv []string, prompt string) []string {
	if prompt == "" {
		return argv
	}
	return append(argv, "--", prompt)
}
