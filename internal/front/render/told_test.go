package render_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestToldOnce: the agent and the checks end once, and one line says so.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	one := 1
	events := []workorder.Event{
		{Type: workorder.EventStepStarted, Name: "agent"},
		{Type: workorder.EventAgentStarted, Name: "command"},
		{Type: workorder.EventAgentFinished, ExitCode: &one},
		{Type: workorder.EventStepFinished, Name: "agent", Status: "failed", ExitCode: &one, Text: "again"},
		{Type: workorder.EventStepStarted, Name: "validate"},
		{Type: workorder.EventValidateStarted, Name: "test"},
		{Type: workorder.EventValidateFinished, Name: "test", Status: "passed"},
		{Type: workorder.EventStepFinished, Name: "validate", Status: "done", Text: "again"},
		{Type: workorder.EventStepFinished, Name: "validate", Status: "failed", Text: "something else"},
	}
	for mode, want := range map[render.Mode][]string{
		render.Plain: {"agent: started command", "agent: finished exit 1", "validate test: started", "validate test: passed", "validate: failed something else"},
		render.TTY:   {"● agent command", "✗ agent finished exit 1", "✓ validate test", "✗ validate something else"},
	} {
		var b bytes.Buffer
		r := render.New(mode, &b, render.Options{Tick: make(chan time.Time)})
		for _, e := range events {
			r.Event(e)
		}
		r.Close()
		for _, w := range want {
			if strings.Count(b.String(), w) != 1 {
				t.Errorf("%q is not there once in\n%q", w, b.String())
			}
		}
		if strings.Contains(b.String(), "again") {
			t.Errorf("told twice:\n%s", b.String())
		}
	}
}

// TestCutShort: what the user stopped did not fail.
func TestCutShort(t *testing.T) {
	t.Parallel()
	code := 143
	for _, mode := range []render.Mode{render.Plain, render.TTY} {
		var b bytes.Buffer
		r := render.New(mode, &b, render.Options{Tick: make(chan time.Time)})
		for _, e := range []workorder.Event{
			{Type: workorder.EventStepFinished, Name: "setup", Status: "failed", Text: "signal"},
			{Type: workorder.EventAgentFinished, ExitCode: &code},
			{Type: workorder.EventStepFinished, Name: "agent", Status: "failed"},
		} {
			r.Event(render.CutShort(e))
		}
		r.Close()
		if s := b.String(); strings.Count(s, "cut short") != 2 || strings.Contains(s, "failed") || strings.Contains(s, "143") {
			t.Errorf("%s", s)
		}
	}
}

// TestSummaryCutsNoCause: what failed and what helps is there to its last word, and once.
func TestSummaryCutsNoCause(t *testing.T) {
	why := "the development server ended before it was ready " + strings.Repeat("and ", 20) + "why"
	r := &workorder.Result{
		TaskID: "T-A1B2C3D4", Status: workorder.StatusFailed, Branch: "agent/T-A1B2C3D4",
		Rebased:    &workorder.Rebased{Moved: []workorder.RangePair{{How: workorder.RangeChanged, Old: "0123456789", Subject: "Greet politely and in every language", Reason: "it had a conflict in greeting/polite.py"}}},
		Validation: []workorder.Validation{{Name: "test", ExitCode: 1, Tail: "FileNotFoundError: [Errno 2] No such file or directory: '/workspace/a/folder/settings.toml'\n"}},
		Steps:      []workorder.Step{{Name: workorder.StepPR, Status: workorder.StepFailed, Error: "open the pull request of o/app: 502 Bad Gateway; try again later; nothing is lost; sandbox-agent pr open T-A1B2C3D4 opens it"}},
		Proof:      &workorder.Proof{Reasons: workorder.Because(workorder.ReasonPages, "%s", why)},
		Warnings:   []string{"another"},
	}
	for _, width := range []int{0, 72} {
		var b bytes.Buffer
		render.Summary(&b, r, render.SummaryOptions{Width: width})
		said := strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "|", "")), " ")
		for _, want := range []string{"a conflict in greeting/polite.py", "/folder/settings.toml'", "nothing is lost; sandbox-agent pr open T-A1B2C3D4 opens it", "and why", "warning another"} {
			if strings.Count(said, want) != 1 {
				t.Errorf("width %d: %d times %q in\n%s", width, strings.Count(said, want), want, b.String())
			}
		}
	}
}
