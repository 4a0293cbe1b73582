package workorder

import (
	"encoding/json"
	"time"
)

// EventType names what an event reports.
type EventType string

// The events. Each says which fields of Event it fills beside Seq and Time.
const (
	// EventTask is the host's first event of a run: ID (the task), Path (the folder of
	// the output on the host), Name (the branch that will be pushed).
	EventTask EventType = "task"
	// EventReady: PID 1 has the order and boot runs. Before it, nothing may be
	// executed in the box. Text: the guest's version.
	EventReady EventType = "ready"
	// EventStepStarted: Name.
	EventStepStarted EventType = "step.started"
	// EventStepFinished: Name, Status (a StepStatus), DurationMS, Text (error or
	// skip reason), ExitCode.
	EventStepFinished EventType = "step.finished"
	// EventService: Name, Status (pulling, loading, starting, started, ready,
	// failed), DurationMS since its start, Text.
	EventService EventType = "service"
	// EventImageRequest asks the host for an image it offered: Name (the
	// reference), Path (where in the box the host has to put the archive; the archive
	// counts when Path.done is there, and Path.failed says why it does not come, see ImageInbox).
	EventImageRequest EventType = "image.request"
	// EventAgentStarted: Name (harness), Text (version).
	EventAgentStarted EventType = "agent.started"
	// EventAgentText: Text, what the agent said.
	EventAgentText EventType = "agent.text"
	// EventAgentTool: Name (the tool), ID, Text (its input, shortened).
	EventAgentTool EventType = "agent.tool"
	// EventAgentToolResult: ID, Text (shortened), Status ok or error.
	EventAgentToolResult EventType = "agent.tool_result"
	// EventAgentOutput: Name (stdout or stderr), Text: a line that is not an event.
	EventAgentOutput EventType = "agent.output"
	// EventAgentUsage: Usage so far.
	EventAgentUsage EventType = "agent.usage"
	// EventAgentError: Text.
	EventAgentError EventType = "agent.error"
	// EventAgentFinished: ExitCode, DurationMS, Text.
	EventAgentFinished EventType = "agent.finished"
	// EventValidateStarted: Name, Text (the command).
	EventValidateStarted EventType = "validate.started"
	// EventValidateFinished: Name, Status passed or failed, ExitCode, DurationMS.
	EventValidateFinished EventType = "validate.finished"
	// EventOutput: Name (step or command), Text: a line of a setup or validate command.
	EventOutput EventType = "output"
	// EventPush: Name (ref), Text (commit id or error), Status ok or error.
	EventPush EventType = "push"
	// EventCheckpoint: Name (ref), Text (commit id or error), Status ok or error,
	// DurationMS of snapshot and push. Nothing is said when nothing changed.
	EventCheckpoint EventType = "checkpoint"
	// EventLease: Status acquired, waiting, lost or released; Text.
	EventLease EventType = "lease"
	// EventRestored: Text (commit id of the checkpoint or the branch), Status ok or error.
	EventRestored EventType = "restored"
	// EventNotice: Text that the agent was told, Status ok or error (it cannot be told).
	EventNotice EventType = "notice"
	// EventHang: Path (evidence in the output), Text, Status resumed or ended.
	EventHang EventType = "hang"
	// EventNetwork: an attempt to reach something outside, the first of its kind: Name
	// (host:port), Status (a NetworkStatus), By (process or container), Text (why it was
	// refused), Fix (the line of the project file that would allow it).
	EventNetwork EventType = "network"
	// EventGuard: a Docker request was refused: Name (the rule), By, Text.
	EventGuard EventType = "guard.refused"
	// EventConfigRestored: settings of agents that the branch changed are those of the
	// base branch while the agent works: Path, Text.
	EventConfigRestored EventType = "config.restored"
	// EventWarning: Text.
	EventWarning EventType = "warning"
	// EventResult: Result, the last event of every run that ends in order.
	EventResult EventType = "result"
)

// Event is one line of the record. Events of one run are numbered from 1
// without gaps; a reader that has seen Seq n can continue after it.
type Event struct {
	Seq        int64     `json:"seq"`
	Time       time.Time `json:"time"`
	Type       EventType `json:"type"`
	Name       string    `json:"name,omitempty"`
	ID         string    `json:"id,omitempty"`
	Status     string    `json:"status,omitempty"`
	Text       string    `json:"text,omitempty"`
	Path       string    `json:"path,omitempty"`
	By         string    `json:"by,omitempty"`
	Fix        string    `json:"fix,omitempty"`
	DurationMS int64     `json:"duration_ms,omitempty"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	Usage      *Usage    `json:"usage,omitempty"`
	Result     *Result   `json:"result,omitempty"`
}

// Step is the step that an event of a step's start or end names; "" for other events.
func (e *Event) Step() StepName {
	if e.Type == EventStepStarted || e.Type == EventStepFinished {
		return StepName(e.Name)
	}
	return ""
}

// MaxEventText bounds Event.Text, in bytes: an event is for following a run,
// the full text is in the logs.
const MaxEventText = 4 << 10

// DecodeEvent reads one line of the record leniently.
func DecodeEvent(line []byte) (Event, error) {
	var e Event
	err := json.Unmarshal(line, &e)
	return e, err
}
