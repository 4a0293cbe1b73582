package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// What a sandbox says is a part of its own line, and nothing else.
func TestMonitorLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &monitor{monitorOptions: &monitorOptions{}, a: &App{Factory: cmdutil.New(cmdutil.IO{Stdout: &out}, app.Env{})}}
	w.tell(monitorEvent{Sandbox: "dev", State: unhealthy, Error: "broken\x1b]0;title\x07\n12:00:00  other  healthy"})
	if s := out.String(); strings.Count(s, "\n") != 1 || strings.Contains(s, "\x1b") || strings.Contains(s, "title") {
		t.Errorf("%q", s)
	}
}

// A look that was ended says nothing of the sandboxes that it could not ask.
func TestMonitorEnded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &monitor{monitorOptions: &monitorOptions{}, a: &App{Factory: cmdutil.New(cmdutil.IO{Stdout: &out}, app.Env{})}, last: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	w.one(ctx, sandbox.Info{Name: "dev", State: sandbox.StateStopped})
	told := out.Len()
	cancel()
	w.one(ctx, sandbox.Info{Name: "other", State: sandbox.StateStopped})
	if told == 0 || out.Len() != told {
		t.Errorf("%q", out.String())
	}
}
