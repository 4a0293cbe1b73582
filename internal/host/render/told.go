package render

import "github.com/sandbox-agent/sandbox-agent/workorder"

// statusCut is the status of an item that the user's stop ended.
const statusCut = "cut short"

// CutShort shows a failed ending as cut short, if the user stopped the run: then the work
// did not fail. A stop does not end a push.
func CutShort(e workorder.Event) workorder.Event {
	bad := e.ExitCode != nil && *e.ExitCode != 0
	switch e.Type {
	case workorder.EventStepFinished:
		bad = e.Status == string(workorder.StepFailed) && e.Name != "push"
	case workorder.EventValidateFinished:
		bad = e.Status == "failed"
	case workorder.EventAgentFinished:
	default:
		return e
	}
	if bad {
		e.Status, e.ExitCode, e.Text = statusCut, nil, ""
	}
	return e
}

// verdict is a printed verdict.
type verdict int

const (
	unsaid verdict = iota
	good
	bad
)

// told remembers the printed verdicts of the agent and of the checks, as the steps of
// these names would repeat them. Of the checkpoints, one a minute, it lets through the
// first, those that fail, and the first good one after these.
type told struct {
	agent, validate verdict
	saved           bool
}

// again notes the event and reports whether it only repeats what was printed.
func (t *told) again(e workorder.Event) bool {
	switch e.Type {
	case workorder.EventAgentFinished:
		t.agent = good
		if e.ExitCode != nil && *e.ExitCode != 0 || e.Status == statusCut {
			t.agent = bad
		}
	case workorder.EventValidateFinished:
		v := good
		if e.Status != "passed" {
			v = bad
		}
		t.validate = max(t.validate, v)
	case workorder.EventCheckpoint:
		before := t.saved
		t.saved = e.Status == "ok"
		return before && t.saved
	case workorder.EventStepStarted:
		return e.Name == kindAgent || e.Name == kindValidate
	case workorder.EventStepFinished:
		said := unsaid
		switch e.Name {
		case kindAgent:
			said = t.agent
		case kindValidate:
			said = t.validate
		}
		return said == bad || said == good && e.Status == string(workorder.StepDone)
	}
	return false
}
