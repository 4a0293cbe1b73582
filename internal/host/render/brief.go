package render

import (
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// long are the steps that can take many minutes, so a log says when one begins.
var long = map[workorder.StepName]bool{
	workorder.StepImage: true, workorder.StepServices: true, workorder.StepSetup: true, workorder.StepProof: true, workorder.StepRepair: true, workorder.StepRebase: true,
}

// essential reports whether an event is in a log that is not verbose: steps and failures. What the agent says and does, output of
// commands and all that went well beside the steps are not. A newer guest's own kinds of events are, since nothing is known of them.
func essential(e workorder.Event) bool {
	switch e.Type {
	case workorder.EventStepStarted:
		return long[workorder.StepName(e.Name)]
	case workorder.EventService:
		return e.Status == "failed"
	case workorder.EventPush, workorder.EventCheckpoint, workorder.EventRestored, workorder.EventNotice:
		return e.Status != "ok"
	case workorder.EventLease:
		return e.Status == "waiting" || e.Status == "lost"
	case workorder.EventNetwork:
		return e.Status == string(workorder.NetworkRefused)
	case workorder.EventReady, workorder.EventImageRequest, workorder.EventOutput,
		workorder.EventAgentText, workorder.EventAgentTool, workorder.EventAgentToolResult, workorder.EventAgentOutput, workorder.EventAgentUsage:
		return false
	}
	return true
}

// outputs keeps the last lines of each command's output, to be shown if its step fails.
type outputs map[string][]string

// note keeps a line of output, and returns those of a step that failed.
func (o outputs) note(e workorder.Event) []string {
	name := oneLine(e.Name)
	switch e.Type {
	case workorder.EventOutput:
		if _, known := o[name]; known || len(o) < maxTasks {
			o[name] = append(o[name][max(0, len(o[name])-keepOutput+1):], oneLine(e.Text))
		}
	case workorder.EventStepFinished:
		lines := o[name]
		delete(o, name)
		if e.Status == string(workorder.StepFailed) {
			return lines
		}
	}
	return nil
}

// running is the step that began last, until it ends, and what it said last.
type running struct {
	step  string
	since time.Time
	said  string
}

func (r *running) note(e workorder.Event, now time.Time) {
	switch e.Type {
	case workorder.EventStepStarted:
		at := e.Time
		if at.IsZero() || at.After(now) { // the clocks differ
			at = now
		}
		*r = running{step: oneLine(e.Name), since: at}
	case workorder.EventStepFinished:
		if oneLine(e.Name) == r.step {
			*r = running{}
		}
	case workorder.EventResult:
		*r = running{}
	case workorder.EventOutput, workorder.EventAgentText, workorder.EventAgentTool:
		r.said = plainText(e)
	}
}

// text says what runs; empty if nothing does.
func (r *running) text(now time.Time) string {
	if r.step == "" {
		return ""
	}
	text := r.step + ": running for " + elapsed(now.Sub(r.since))
	if r.said != "" {
		text += ": " + r.said
	}
	return text
}
