package sandboxcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
)

// What a sandbox says is a part of its own line, and nothing else.
func TestMonitorLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printMonitorEvent(&out, app.MonitorEvent{Sandbox: "dev", State: app.Unhealthy, Error: "broken\x1b]0;title\x07\n12:00:00  other  healthy"})
	if s := out.String(); strings.Count(s, "\n") != 1 || strings.Contains(s, "\x1b") || strings.Contains(s, "title") {
		t.Errorf("%q", s)
	}
}
