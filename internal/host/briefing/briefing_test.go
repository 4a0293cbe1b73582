package briefing

import (
	"strings"
	"testing"
)

// What is in force is told, and what is not there is not.
func TestText(t *testing.T) {
	t.Parallel()
	all := Facts{
		Sandbox: "dev", Kind: "box", Workdir: "/workspace", Branch: "sandbox/dev", Network: "restricted", Allow: []string{"b.example", "a.example"},
		Services: []string{"redis"}, Ports: []string{"3000"}, Checks: []Check{{"test", "go vet ./...\ngo test ./..."}}, Docker: true, More: "the project's own",
	}
	for name, row := range map[string]struct {
		f         Facts
		has, lack []string
	}{
		"all":     {all, []string{"/workspace", "sandbox/dev", "a.example, b.example", "redis", "3000", "go vet ./...; go test ./...", "the project's own", "Docker"}, []string{"Network: full", "Network: none"}},
		"none":    {Facts{Sandbox: "x", Workdir: "/w", Network: "none"}, []string{"Network: none", "/w"}, []string{"clone", "Docker", "Services", "Check", "Ports"}},
		"nothing": {Facts{Network: "restricted"}, []string{"It reaches: nothing"}, nil},
		"full":    {Facts{Network: "full"}, []string{"Network: full"}, []string{"refused"}},
	} {
		text := row.f.Text()
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
