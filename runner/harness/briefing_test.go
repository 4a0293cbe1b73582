package harness

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Every agent gets to know of the development server, each in its way; the command harness gets the task byte for byte.
func TestDevBriefing(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{Dev: &workorder.Dev{Command: "npm run dev -- --x=\"a\nb\"", Port: 3000, ReadyPath: "/health"}}
	o.Network.Mode = workorder.NetworkNone
	for _, name := range workorder.Harnesses() {
		h, err := For(name)
		if err != nil {
			t.Fatal(err)
		}
		run := Input{Order: o, SessionID: "s", Env: []string{"ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k"}}
		o.Harness = workorder.Harness{Name: name}
		if name == workorder.HarnessCommand {
			o.Harness.Command = []string{"true"}
		}
		c, err := h.Command(run)
		if err != nil {
			t.Fatal(name, err)
		}
		prompt := Prompted(h, o, "do it")
		told := prompt + strings.Join(c.Argv, " ")
		if name == workorder.HarnessCommand {
			if prompt != "do it" || !slices.Contains(c.Env, "SANDBOX_AGENT_DEV_COMMAND="+o.Dev.Command) || !slices.Contains(c.Env, "SANDBOX_AGENT_DEV_PORT=3000") {
				t.Errorf("%s: %q %q", name, prompt, c.Env)
			}
			continue
		}
		for _, want := range []string{`npm run dev -- --x=\"a\nb\"`, "http://127.0.0.1:3000/health", "the browser `agent-browser`", "$SANDBOX_AGENT_MEDIA", "has no network"} {
			if strings.Count(told, want) != 1 {
				t.Errorf("%s: %q is not there once: %s", name, want, told)
			}
		}
	}
	for _, name := range workorder.Harnesses() {
		h, err := For(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := Prompted(h, &workorder.Order{}, "do it"); got != "do it" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
