package app

import (
	"context"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
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

// A stop that a command asked for counts, whatever came to the history after it.
func TestMonitorRestarts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		events []string
		want   bool
	}{
		"killed":               {[]string{sandboxstore.EventCreated}, true},
		"killed, noted":        {[]string{sandboxstore.EventCreated, sandboxstore.EventEnded}, true},
		"stopped":              {[]string{sandboxstore.EventStarted, sandboxstore.EventStopped}, false},
		"stopped in a command": {[]string{sandboxstore.EventStarted, sandboxstore.EventStopped, sandboxstore.EventExecuted}, false},
		"a start that failed":  {[]string{sandboxstore.EventEnded, sandboxstore.EventFailed}, true},
		"no history":           {nil, true},
	} {
		w := &monitor{kept: sandboxstore.New(t.TempDir())}
		for _, e := range row.events {
			w.note("a", e, "")
		}
		if got := w.endedUnexpectedly(sandbox.Info{Name: "a", State: sandbox.StateStopped}); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A paused sandbox is reported as such and not restarted.
func TestMonitorPaused(t *testing.T) {
	t.Parallel()
	var all []string
	w := &monitor{
		MonitorOptions: MonitorOptions{Restart: true, Report: func(e MonitorEvent) { all = append(all, e.State) }},
		kept:           sandboxstore.New(t.TempDir()), last: map[string]string{"dev": Healthy}, again: map[string]pause{},
	}
	w.one(t.Context(), sandbox.Info{Name: "dev", State: sandbox.StatePaused})
	if !slices.Equal(all, []string{"paused"}) {
		t.Errorf("%q", all)
	}
}

// The history has each change of health.
func TestMonitorHealth(t *testing.T) {
	t.Parallel()
	w := &monitor{kept: sandboxstore.New(t.TempDir()), last: map[string]string{}}
	for _, e := range []MonitorEvent{{State: Healthy}, {State: Unhealthy}, {State: Unhealthy}, {State: Healthy}, {State: Restarted}, {State: Healthy}} {
		e.Sandbox = "a"
		w.noteHealth(e)
		w.last["a"] = e.State
	}
	all, err := w.kept.History("a")
	if err != nil || len(all) != 2 || slices.ContainsFunc(all, func(e sandboxstore.Event) bool { return e.Event != sandboxstore.EventHealthChanged }) {
		t.Errorf("%+v, %v", all, err)
	}
}
