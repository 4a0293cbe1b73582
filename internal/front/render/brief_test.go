package render_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// printed are the kinds of events that a log shows, each with its status or step.
func printed(events []workorder.Event, verbose bool) []string {
	var shown []string
	var b bytes.Buffer
	r := render.New(render.Plain, &b, render.Options{Verbose: verbose})
	defer r.Close()
	for _, e := range events {
		b.Reset()
		if r.Event(e); b.Len() > 0 {
			shown = append(shown, strings.TrimSpace(string(e.Type)+" "+e.Name+" "+e.Status))
		}
	}
	return shown
}

// TestBriefLog: without --verbose a log has steps and failures, and nothing of what the agent says or commands print.
func TestBriefLog(t *testing.T) {
	t.Parallel()
	one := 1
	news := []workorder.Event{
		{Type: workorder.EventStepFinished, Name: "clone", Status: "done"},
		{Type: workorder.EventStepStarted, Name: "setup"},
		{Type: workorder.EventStepFinished, Name: "setup", Status: "failed", ExitCode: &one},
		{Type: workorder.EventService, Name: "redis", Status: "failed", Text: "no"},
		{Type: workorder.EventAgentStarted, Name: "command"},
		{Type: workorder.EventAgentError, Text: "no route"},
		{Type: workorder.EventAgentFinished, Name: "command"},
		{Type: workorder.EventValidateStarted, Name: "test"},
		{Type: workorder.EventValidateFinished, Name: "test", Status: "passed"},
		{Type: workorder.EventPush, Name: "b", Status: "error", Text: "refused"},
		{Type: workorder.EventCheckpoint, Status: "error", Text: "refused"},
		{Type: workorder.EventLease, Status: "lost"},
		{Type: workorder.EventRestored, Status: "error", Text: "no"},
		{Type: workorder.EventNotice, Status: "error", Text: "no"},
		{Type: workorder.EventHang, Status: "ended"},
		{Type: workorder.EventNetwork, Name: "example.com:443", Status: string(workorder.NetworkRefused)},
		{Type: workorder.EventGuard, Name: "privileged", Text: "no"},
		{Type: workorder.EventConfigRestored, Path: "x"},
		{Type: workorder.EventWarning, Text: "w"},
		{Type: "newer.kind", Text: "x"},
		{Type: workorder.EventResult},
	}
	rest := []workorder.Event{
		{Type: workorder.EventReady, Text: "v1"},
		{Type: workorder.EventStepStarted, Name: "clone"},
		{Type: workorder.EventService, Name: "redis", Status: "ready"},
		{Type: workorder.EventImageRequest, Name: "redis:7"},
		{Type: workorder.EventAgentText, Text: "I think"},
		{Type: workorder.EventAgentTool, Name: "Bash", Text: "ls"},
		{Type: workorder.EventAgentToolResult, Status: "error", Text: "1 failed"},
		{Type: workorder.EventAgentOutput, Name: "stderr", Text: "x"},
		{Type: workorder.EventAgentUsage, Usage: &workorder.Usage{InputTokens: 1}},
		{Type: workorder.EventOutput, Name: "test", Text: "ok"},
		{Type: workorder.EventPush, Name: "b", Status: "ok", Text: sha},
		{Type: workorder.EventCheckpoint, Status: "ok", Text: sha},
		{Type: workorder.EventLease, Status: "acquired"},
		{Type: workorder.EventRestored, Status: "ok", Text: sha},
		{Type: workorder.EventNotice, Status: "ok", Text: "80 %"},
		{Type: workorder.EventNetwork, Name: "example.com:443", Status: string(workorder.NetworkAllowed)},
	}
	if d := cmp.Diff(printed(news, true), printed(news, false)); d != "" {
		t.Errorf("steps and failures (-verbose +brief):\n%s", d)
	}
	if all := printed(news, false); len(all) != len(news) {
		t.Errorf("%d of %d steps and failures: %q", len(all), len(news), all)
	}
	if all := printed(rest, false); len(all) != 0 {
		t.Errorf("printed without --verbose: %q", all)
	}
	if all := printed(rest, true); len(all) != len(rest) {
		t.Errorf("--verbose prints %d of %d: %q", len(all), len(rest), all)
	}
}

// TestBriefLogOfAFailure: the end of a failed step's output is there, that of one which did well is not.
func TestBriefLogOfAFailure(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := render.New(render.Plain, &b, render.Options{})
	for _, e := range []workorder.Event{
		{Type: workorder.EventOutput, Name: "clone", Text: "of-a-good-step"},
		{Type: workorder.EventStepFinished, Name: "clone", Status: "done"},
		{Type: workorder.EventOutput, Name: "setup", Text: "of-a-bad-step"},
		{Type: workorder.EventStepFinished, Name: "setup", Status: "failed"},
		{Type: workorder.EventStepFinished, Name: "setup", Status: "failed"},
	} {
		r.Event(e)
	}
	if strings.Count(b.String(), "of-a-bad-step") != 1 || strings.Contains(b.String(), "of-a-good-step") {
		t.Errorf("%s", b.String())
	}
}

// TestBriefSummary: a run's end has short lists, and neither times nor logs of what passed; `result` has all of it.
func TestBriefSummary(t *testing.T) {
	t.Parallel()
	r := &workorder.Result{
		TaskID: "T-A1B2C3D4", Status: workorder.StatusSuccess, Branch: "b", Pushed: true,
		Steps:      []workorder.Step{{Name: workorder.StepClone, Status: workorder.StepDone, DurationMS: 400}},
		Validation: []workorder.Validation{{Name: "test", Passed: true, Log: "logs/good.log"}, {Name: "lint", ExitCode: 1, Log: "logs/bad.log"}},
		Evidence:   []workorder.Evidence{{Name: "one", Path: "evidence/one.png"}, {Name: "two", Path: "evidence/two.png"}},
	}
	for i := range 30 {
		r.Warnings = append(r.Warnings, "careful-"+strings.Repeat("x", i))
		r.Commits = append(r.Commits, workorder.Commit{SHA: sha, Subject: "subject-"})
	}
	lines := func(all bool) (subjects, warnings int, others []string) {
		var b bytes.Buffer
		render.Summary(&b, r, render.SummaryOptions{All: all})
		for _, name := range []string{"clone 400ms", "good.log", "bad.log", "one.png"} {
			if strings.Contains(b.String(), name) {
				others = append(others, name)
			}
		}
		return strings.Count(b.String(), "subject-"), strings.Count(b.String(), "careful-"), others
	}
	s, w, o := lines(false)
	if s != 5 || w != 5 || !slices.Equal(o, []string{"bad.log"}) {
		t.Errorf("short: %d commits, %d warnings, %q", s, w, o)
	}
	s, w, o = lines(true)
	if s != 20 || w != 20 || len(o) != 4 {
		t.Errorf("all: %d commits, %d warnings, %q", s, w, o)
	}
}
