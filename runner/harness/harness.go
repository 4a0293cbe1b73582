// Package harness defines how to start and stop each agent, and parses its output. It starts no process and opens no file, so that recorded
// streams serve as tests of the parsers. Events are workorder.Event; docs/harnesses.md describes the protocol of harness command.
package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Input describes one run to an adapter.
type Input struct {
	Order *workorder.Order
	// SessionID is a fresh UUID, for agents that accept a session id.
	SessionID  string
	PromptFile string
	Workspace  string
	Home       string
	Env        []string
	// NoticeFile is where a Notifier's agent reads notices. It does not exist before the first one.
	NoticeFile string
}

// Invocation describes how to start and stop the agent. The prompt is always on its standard input.
type Invocation struct {
	Argv []string
	// Env is added to Input.Env and takes precedence.
	Env []string
	// Stop lists the signals that request its end, spread over the grace period; SIGKILL follows.
	Stop []syscall.Signal
}

// Harness is the adapter to one kind of agent.
type Harness interface {
	Name() string
	// Command returns how to start the agent, or an error that names what is missing. It has no side effects.
	Command(Input) (Invocation, error)
	// Parser returns a new parser for one process.
	Parser(Input) Parser
}

// Resumer is a Harness whose agent can continue a stopped session.
type Resumer interface {
	// Resume returns the Invocation that continues Input.SessionID with the prompt in PromptFile.
	Resume(Input) (Invocation, error)
}

// Notifier is a Harness whose agent can receive notices while it works.
type Notifier interface {
	// Notice returns the content of Input.NoticeFile that makes the agent read text once, at the next opportunity.
	Notice(in Input, text string) ([]byte, error)
}

// Recorder is a Harness whose agent leaves a transcript.
type Recorder interface {
	// Transcript returns a slash-separated glob of it, relative to Input.Home.
	Transcript(Input) string
	// Cost parses the spending so far from one line of the transcript. ofSession: it includes earlier processes of the session.
	Cost(line []byte) (usd float64, ofSession, ok bool)
}

// BusyIdler is a Harness whose agent uses CPU time while it waits.
type BusyIdler interface {
	// BusyProcess returns the name of the process whose CPU time is not a sign of life. Its children and output still are.
	BusyProcess() string
}

// Parser reads the standard output of one run. It is not safe for concurrent use.
type Parser interface {
	// Line parses one line without its line ending. understood is false for a line that is not an event of this agent.
	Line(line []byte) (events []workorder.Event, understood bool)
	// StopReason returns why the agent should be stopped early; empty if it should not.
	StopReason() string
	// End returns the outcome after the agent has ended.
	End(Exit) Outcome
}

// Exit reports how the agent's process ended.
type Exit struct {
	Code   int
	Signal string // SIGSEGV, …; empty when it exited by itself
	Stderr string // end of its standard error
}

// Verdict is an agent's own result of its task.
type Verdict string

// Verdicts. The parser does not know about timeouts and signals of the runner.
const (
	Succeeded Verdict = "succeeded"
	Failed    Verdict = "failed"
	// Budget: the agent itself stopped at the budget.
	Budget Verdict = "budget"
	// Limited: a usage limit of the model's provider was reached; the task can continue later.
	Limited Verdict = "limited"
)

// Outcome is a parser's conclusion.
type Outcome struct {
	Verdict Verdict
	Reason  string // one sentence; empty on success
	// Code is the reason code, if there is a more specific one than workorder.ReasonAgent.
	Code      workorder.ReasonCode `json:",omitempty"`
	ResumeAt  *time.Time           // reported end of the limit; nil if not reported
	Final     string               // the agent's final message
	SessionID string
	Version   string
	Model     string
	Turns     int
	// Denials counts tool calls that were denied to the agent.
	Denials int
	Usage   workorder.Usage // of this process
	// InSession is the usage of the whole session, if the agent reports it.
	InSession workorder.Usage `json:",omitzero"`
	Warnings  []string
}

// unknownModel is the reason code for an unknown model, "" if the model has answered before.
func unknownModel(u workorder.Usage) workorder.ReasonCode {
	if u.Tokens() > 0 {
		return ""
	}
	return workorder.ReasonModelName
}

// For returns the named adapter for one run: it may keep the session id that the agent's processes report.
func For(name string) (Harness, error) {
	switch name {
	case workorder.HarnessClaudeCode:
		return claude{}, nil
	case workorder.HarnessCodex:
		return &codex{}, nil
	case workorder.HarnessOpencode:
		return &opencode{}, nil
	case workorder.HarnessCommand:
		return command{}, nil
	}
	return nil, fmt.Errorf("unknown harness %q (known: %s)", name, strings.Join(workorder.Harnesses(), ", "))
}

// object decodes a line that is one JSON object. The first byte is checked first: agents may print millions of other lines.
func object(line []byte) (map[string]json.RawMessage, bool) {
	for len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		line = line[1:]
	}
	if len(line) == 0 || line[0] != '{' {
		return nil, false
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(line, &o) != nil {
		return nil, false
	}
	return o, true
}

// field reads one field leniently: the zero value if it is absent or of another type.
func field[T any](o map[string]json.RawMessage, key string) T {
	var v, zero T
	raw, ok := o[key]
	if !ok || json.Unmarshal(raw, &v) != nil {
		return zero
	}
	return v
}

// toolText shortens the input of a tool call for a person who follows the run.
func toolText(input json.RawMessage) string {
	o, ok := object(input)
	if !ok {
		return field[string](map[string]json.RawMessage{"v": input}, "v")
	}
	for _, key := range []string{"command", "file_path", "filePath", "path", "pattern", "url", "query", "description"} {
		if s := field[string](o, key); s != "" {
			return s
		}
	}
	return string(input)
}

func howItEnded(e Exit) string {
	switch {
	case e.Signal != "":
		return "ended by " + e.Signal
	case e.Code > 128 && unix.SignalName(syscall.Signal(e.Code-128)) != "":
		// This is how a shell between the runner and the program reports its death.
		return fmt.Sprintf("exited with %d (128 + %s)", e.Code, unix.SignalName(syscall.Signal(e.Code-128)))
	}
	return fmt.Sprintf("exited with %d", e.Code)
}

func because(how string, explanations ...string) string {
	for _, x := range explanations {
		if x = strings.TrimSpace(x); x != "" {
			return how + ": " + x
		}
	}
	return how
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func envValue(env []string, name string) string {
	for _, kv := range slices.Backward(env) { // the last one wins, as for the child
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
