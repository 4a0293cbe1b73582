package projects_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

// Docs: docs/branches.md
func TestPermissions(t *testing.T) {
	t.Parallel()
	load := func(agent string) (*projects.Project, error) {
		file := filepath.Join(t.TempDir(), "x.yaml")
		write(t, file, "name: x\nharness: claude-code\nagents:\n  a: "+agent+"\n")
		return projects.Load(file, projects.LoadOptions{})
	}
	for agent, mistakes := range map[string]int{
		"{name: claude-code, permissions: {skip: true}}":                                              0,
		"{name: claude-code, permissions: {allow: [Read, 'Bash(go test:*)'], deny: [WebFetch]}}":      0,
		"{name: codex, permissions: {deny: ['Bash(git push:*)']}}":                                    0,
		"{name: claude-code, permissions: {skip: true, allow: [Read]}}":                               1,
		"{name: claude-code, permissions: {allow: [Teleport, 'Bash(:*)', 'Bash(a', 'Bash(a\"b:*)']}}": 4,
		"{name: codex, permissions: {allow: [Read], deny: [WebFetch]}}":                               2,
		"{name: command, command: x, permissions: {allow: [Read]}}":                                   1,
	} {
		p, err := load(agent)
		if list, _ := projects.Problems(err); len(list) != mistakes {
			t.Errorf("%s: not %d mistakes: %v", agent, mistakes, err)
		}
		if mistakes == 0 && strings.Contains(agent, "allow") &&
			(!slices.Equal(p.Agents[0].Permissions.Allow, []string{"Read", "Bash(go test:*)"}) || !p.Agents[0].Permissions.Asks()) {
			t.Errorf("%s: %+v", agent, p.Agents)
		}
	}
}
