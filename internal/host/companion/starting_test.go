package companion_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The error of a box that did not start has the first failed step, not the result that follows it.
func TestFailedStep(t *testing.T) {
	t.Parallel()
	const reason = `"make setup" exited with 3`
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(b *runtimetest.Box) int {
		events := json.NewEncoder(b.Stdout)
		for _, e := range []workorder.Event{
			{Type: workorder.EventStepStarted, Name: "setup"},
			{Type: workorder.EventStepFinished, Name: "setup", Status: "failed", Text: reason},
			{Type: workorder.EventResult, Status: "failed"},
		} {
			if err := events.Encode(e); err != nil {
				t.Error(err)
			}
		}
		return 1
	}})
	err := companion.StartingBox{
		Engine: fake, Progress: func(workorder.Event) {}, Log: slog.New(slog.DiscardHandler),
		Ready: func(workorder.Event) bool { return false },
	}.Wait(t.Context(), run(t, fake), time.Time{})
	if err == nil || !strings.HasSuffix(err.Error(), "setup: "+reason) {
		t.Error(err)
	}
}
