package render

import (
	"io"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestNoise: a step that the project does not ask for is not printed when it is skipped; one that it asks for is, and every failure.
func TestNoise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step   workorder.StepName
		status workorder.StepStatus
		want   bool
	}{
		{workorder.StepSupabase, workorder.StepSkipped, false},
		{workorder.StepServices, workorder.StepSkipped, false},
		{workorder.StepEnv, workorder.StepSkipped, false},
		{workorder.StepValidate, workorder.StepSkipped, true},
		{workorder.StepProof, workorder.StepSkipped, true},
		{workorder.StepSetup, workorder.StepFailed, true},
	} {
		for name, build := range map[string]func(io.Writer, Options) Renderer{"plain": newPlain, "terminal": newTTY} {
			var b strings.Builder
			r := build(&b, Options{})
			r.Event(workorder.Event{Type: workorder.EventStepFinished, Name: string(c.step), Status: string(c.status), Text: "why"})
			r.Close()
			if got := strings.Contains(b.String(), string(c.step)); got != c.want {
				t.Errorf("%s: %s %s: %q", name, c.step, c.status, b.String())
			}
		}
	}
}
