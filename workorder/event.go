package workorder

import (
	"cmp"
	"encoding/json"
	"time"
)

// EventType is the type of an event.
type EventType string

// Events. Each lists the fields of Event that it sets in addition to Seq and Time.
const (
	// EventTask is the host's first event of an attempt: ID (the task), Path (the output directory on the host), Name
	// (the branch to push).
	EventTask EventType = "task"
	// EventReady: PID 1 has the order and boot runs. Do not exec in the box before it. Text: the guest's version.
	EventReady EventType = "ready"
	// EventStandby: the host took a box that was started before the task: Name (the box). Before its order, such a box reports with this
	// event, without Seq, that it is booted: Status done, or failed with Text.
	EventStandby EventType = "standby"
	// EventStepStarted: Name.
	EventStepStarted EventType = "step.started"
	// EventStepFinished: Name, Status (a StepStatus), DurationMS, Text (error or skip reason), ExitCode.
	EventStepFinished EventType = "step.finished"
	// EventService: Name, Status (pulling, loading, starting, started, ready, failed), DurationMS since its start, Text.
	EventService EventType = "service"
	// EventImageRequest asks the host for an image that it offered: Name (the reference), Path (where the host writes the archive in the
	// box; Path.done marks it complete, and Path.failed has the reason of a failure, see ImageInbox).
	EventImageRequest EventType = "image.request"
	// EventAgentStarted: Name (harness), Text (version).
	EventAgentStarted EventType = "agent.started"
	// EventAgentText: Text, a message of the agent.
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
	// EventCheckpoint: Name (ref), Text (commit id or error), Status ok or error, DurationMS of snapshot and push. It
	// is omitted if nothing changed.
	EventCheckpoint EventType = "checkpoint"
	// EventLease: Status acquired, waiting, lost or released; Text.
	EventLease EventType = "lease"
	// EventRestored: Text (commit id of the checkpoint or the branch), Status ok or error.
	EventRestored EventType = "restored"
	// EventNotice: Text, a message to the agent; Status ok or error (not delivered).
	EventNotice EventType = "notice"
	// EventHang: Path (evidence in the output), Text, Status resumed or ended.
	EventHang EventType = "hang"
	// EventNetwork: an attempt to reach an outside host, the first of its kind: Name (host:port), Status (a NetworkStatus), By (process
	// or container), Text (why it was refused), Fix (the line of the project file that would allow it).
	EventNetwork EventType = "network"
	// EventGuard: a Docker request was refused: Name (the rule), By, Text.
	EventGuard EventType = "guard.refused"
	// EventConfigRestored: the branch changed agent settings; the base branch's are used while the agent works: Path, Text.
	EventConfigRestored EventType = "config.restored"
	// EventWarning: Text.
	EventWarning EventType = "warning"
	// EventResult: Result. It is the last event of an attempt that ends in order.
	EventResult EventType = "result"
)

// Event is one line of the event log. Events of an attempt are numbered from 1 without gaps; a reader that has seen Seq
// n can continue after it.
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

// Step returns the step of an EventStepStarted or EventStepFinished; "" for other events.
func (e *Event) Step() StepName {
	if e.Type == EventStepStarted || e.Type == EventStepFinished {
		return StepName(e.Name)
	}
	return ""
}

// MaxEventText is the limit of Event.Text, in bytes. The full text is in the logs.
const MaxEventText = 4 << 10

// DecodeEvent reads one line of the event log leniently. It replaces step names of older versions.
func DecodeEvent(line []byte) (Event, error) {
	var e Event
	err := json.Unmarshal(line, &e)
	if step := e.Step(); step != "" {
		e.Name = string(cmp.Or(oldStepNames[step], step))
	}
	return e, err
}
