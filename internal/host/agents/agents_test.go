package agents

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Every harness has a line, with its model, its arguments and what it is told.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, name := range workorder.Harnesses() {
		h := workorder.Harness{Name: name, Model: "m", Args: []string{"--more"}, Command: []string{"mine"}}
		c, err := Line(Start{Harness: h, Prompt: "-do it", Briefing: "told", File: "/w/b.md", Home: "/h", Workdir: "/w"})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(append(c.Argv, c.Env...), "\x00")
		for _, content := range c.Files {
			all += content
		}
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
	if c, err := Line(Start{Harness: workorder.Harness{Name: "other"}}); err == nil {
		t.Errorf("%+v", c)
	}
}
