package app

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A look that was ended says nothing of the sandboxes that it could not ask.
func TestMonitorEnded(t *testing.T) {
	t.Parallel()
	var all []MonitorEvent
	w := &monitor{MonitorOptions: MonitorOptions{Report: func(e MonitorEvent) { all = append(all, e) }}, last: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	w.one(ctx, sandbox.Info{Name: "dev", State: sandbox.StateStopped})
	told := len(all)
	cancel()
	w.one(ctx, sandbox.Info{Name: "other", State: sandbox.StateStopped})
	if told == 0 || len(all) != told {
		t.Errorf("%v", all)
	}
}
