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

// Run is what an adapter has to know of one run.
type Run struct {
	Order *workorder.Order
	// SessionID is a fresh UUID, for agents that let us choose.
	SessionID  string
	PromptFile string
	Workspace  string
	Home       string
	// Env is the environment that the agent will have, to look for what it needs.
	Env []string
	// NoticeFile is where a Notifier's agent finds what it is told while it works.
	// There is no such file until then. Its folder cannot be written by the agent.
	NoticeFile string
}

// Command is how the agent is started and stopped. The prompt is always on its
// standard input.
type Command struct {
	Argv []string
	// Env goes on top of Run.Env.
	Env []string
	// Stop are the signals that ask it to end, spread over the grace; SIGKILL follows.
	Stop []syscall.Signal
}

// Harness is the adapter to one kind of agent.
type Harness interface {
	Name() string
	// Command says how to start the agent, or what is missing to start it. It
	// has no side effects, so that it also serves to check an order early.
	Command(Run) (Command, error)
	// Parser returns a new parser for one process.
	Parser(Run) Parser
}

// Versioner is a Harness whose program can be asked for its version.
type Versioner interface {
	// VersionCommand prints the version as its first word.
	VersionCommand() []string
}

// Resumer is a Harness whose agent can go on with a session that was stopped.
type Resumer interface {
	// Resume is Command for another process of the session Run.SessionID. PromptFile
	// holds what the process is told in addition.
	Resume(Run) (Command, error)
}

// Notifier is a Harness whose agent can be told something while it works.
type Notifier interface {
	// Notice is what to put into Run.NoticeFile so that the agent gets to know text
	// at the next opportunity, once; or why it cannot be told.
	Notice(r Run, text string) ([]byte, error)
}

// Recorder is a Harness whose agent leaves a transcript.
type Recorder interface {
	// Transcript is a slash-separated glob of it, relative to Run.Home.
	Transcript(Run) string
	// Cost reads what was spent so far out of one line of the transcript. It is
	// how a budget is watched while the agent works, and the last word when
	// it was killed before it could give its own result. ofSession: with the
	// earlier processes of a session that was resumed; else of this process alone.
	Cost(line []byte) (usd float64, ofSession, ok bool)
}

// Restless is a Harness whose agent uses CPU time while it waits.
type Restless interface {
	// RestlessProcess is the name of the process whose CPU time is no sign of life. Signs of life are the use of its
	// commands, its words, its changes and its requests to the model, as ever.
	RestlessProcess() string
}

// Parser reads the standard output of one run. It is used by one goroutine.
type Parser interface {
	// Line takes one line, without its end. It never fails: understood is false
	// for a line that is no event of this agent, which is then text.
	Line(line []byte) (events []workorder.Event, understood bool)
	// Halt says why it is pointless to let the agent go on; empty when it is not.
	Halt() string
	// End draws the conclusion when the agent has ended.
	End(Exit) Outcome
}

// Exit is how the agent's process ended.
type Exit struct {
	Code   int
	Signal string // SIGSEGV, …; empty when it exited by itself
	Stderr string // end of its standard error
}

// Verdict is what an agent made of its task.
type Verdict string

// The verdicts. The parser does not know of a timeout or signal from us.
const (
	Succeeded Verdict = "succeeded"
	Failed    Verdict = "failed"
	// Budget: the agent itself stopped at the budget.
	Budget Verdict = "budget"
	// Limited: a usage limit of the model's provider was reached; it goes on later.
	Limited Verdict = "limited"
)

// Outcome is what a parser concludes.
type Outcome struct {
	Verdict Verdict
	Reason  string // one sentence; empty on success
	// Code is that of the reason, where there is a better one than workorder.ReasonAgent.
	Code      workorder.ReasonCode `json:",omitempty"`
	ResumeAt  *time.Time           // when the limit is said to be over; nil means not said
	Final     string               // the agent's last words
	SessionID string
	Version   string
	Model     string
	Turns     int
	// Denials counts tool calls that the agent was not allowed to make.
	Denials int
	Usage   workorder.Usage // of this process
	// InSession is the use of the whole session, where the agent says so: with the
	// processes before that one, of which some may have ended without a word.
	InSession workorder.Usage `json:",omitzero"`
	Warnings  []string
}

// unknownModel is the reason of a model that the provider does not know, "" when it has answered before.
func unknownModel(u workorder.Usage) workorder.ReasonCode {
	if u.Tokens() > 0 {
		return ""
	}
	return workorder.ReasonModelName
}

// For returns the adapter of that name, for one run: it may remember the session that the
// agent's processes told of.
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
	return nil, fmt.Errorf("harness %q is not known (known: %s)", name, strings.Join(workorder.Harnesses(), ", "))
}

// object decodes a line that is one JSON object. The cheap look at the first
// byte comes first because agents may print millions of lines that are none.
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

// field reads one field leniently: absent or of another type is the zero value.
func field[T any](o map[string]json.RawMessage, key string) T {
	var v, zero T
	raw, ok := o[key]
	if !ok || json.Unmarshal(raw, &v) != nil {
		return zero
	}
	return v
}

// toolText shortens the input of a tool call to what a reader follows a run by.
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

// howItEnded describes an exit that is not a success.
func howItEnded(e Exit) string {
	switch {
	case e.Signal != "":
		return "ended by " + e.Signal
	case e.Code > 128 && unix.SignalName(syscall.Signal(e.Code-128)) != "":
		// A shell between us and the program reports its death like this.
		return fmt.Sprintf("exited with %d (128 + %s)", e.Code, unix.SignalName(syscall.Signal(e.Code-128)))
	}
	return fmt.Sprintf("exited with %d", e.Code)
}

// because joins how an agent ended with the best explanation at hand.
func because(how string, explanations ...string) string {
	for _, x := range explanations {
		if x = strings.TrimSpace(x); x != "" {
			return how + ": " + x
		}
	}
	return how
}

// lastLine returns the last line of s that is not blank.
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
