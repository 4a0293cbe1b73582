package cli

import (
	"bytes"
	"strings"
	"testing"
)

// What a sandbox says is a part of its own line, and nothing else.
func TestMonitorLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &monitor{monitorOptions: &monitorOptions{}, a: &App{Stdout: &out}}
	w.tell(monitorEvent{Sandbox: "dev", State: unhealthy, Error: "broken\x1b]0;title\x07\n12:00:00  other  healthy"})
	if s := out.String(); strings.Count(s, "\n") != 1 || strings.Contains(s, "\x1b") || strings.Contains(s, "title") {
		t.Errorf("%q", s)
	}
}
