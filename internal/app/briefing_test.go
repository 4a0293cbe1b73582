package app

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The briefing describes what is in force, and nothing else.
func TestBriefing(t *testing.T) {
	t.Parallel()
	all := briefing{
		sandbox: "dev", runtime: "box", workdir: "/workspace", branch: "sandbox/dev", network: "restricted", allow: []string{"b.example", "a.example"},
		services: []string{"redis"}, ports: []string{"3000"}, checks: []workorder.Check{{Name: "test", Run: "go vet ./...\ngo test ./..."}}, docker: true, project: projects.Briefing{Text: "the project's own"},
		tools: map[string]string{"node": "22", "go": "1.26"},
	}
	hidden := all
	hidden.project = projects.Briefing{Text: "more", NoTools: true, NoChecks: true, NoNetwork: true}
	for name, row := range map[string]struct {
		f         briefing
		has, lack []string
	}{
		"all":     {all, []string{"/workspace", "sandbox/dev", "a.example, b.example", "redis", "3000", "go vet ./...; go test ./...", "the project's own", "Docker", "go 1.26, node 22"}, []string{"Network: full", "Network: none"}},
		"hidden":  {hidden, []string{"more", "/workspace"}, []string{"Network", "go vet", "go 1.26"}},
		"none":    {briefing{sandbox: "x", workdir: "/w", network: "none"}, []string{"Network: none", "/w"}, []string{"clone", "Docker", "Services", "Check", "Ports"}},
		"nothing": {briefing{network: "restricted"}, []string{"It reaches: nothing"}, nil},
		"full":    {briefing{network: "full"}, []string{"Network: full"}, []string{"refused"}},
	} {
		text := row.f.markdown()
		for _, s := range row.has {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is not in\n%s", name, s, text)
			}
		}
		for _, s := range row.lack {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q is in\n%s", name, s, text)
			}
		}
	}
}
