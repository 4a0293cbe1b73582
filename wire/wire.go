// Package wire defines the protocol between the guest of a sandbox and its clients: paths, documents and frames of an
// HTTP/2 API without TLS over any byte stream. A runtime only has to provide such a stream: the engine's stream of a
// command in a container, the pipe of a jail, a socket.
//
// A client begins with PathHello and continues only with a guest of the same Version. It must not trust the guest:
// Reader limits frames, and clients limit documents to MaxDocument.
package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is the protocol version. Guest and client must have the same.
const Version = 1

// Paths of the API.
const (
	// PathHello, by GET, returns a Hello.
	PathHello = "/v1/hello"
	// PathExec, by POST, runs a command: the body is one FrameCommand, then the command's standard input. The answer
	// has frames: FrameStarted, output, FrameExit. Closing the request ends the command, unless it runs in the
	// background. By GET it lists running commands and ended background commands, a CommandStatus each.
	PathExec = "/v1/exec"
	// PathExecOf, by GET, returns the output of a command as frames, from an offset (QueryFrom) until its end. DELETE
	// ends the command and every process it started.
	PathExecOf = "/v1/exec/{id}"
	// PathExecSignal, by POST with a Signal, sends a signal to the command's process group.
	PathExecSignal = "/v1/exec/{id}/signal"
	// PathExecResize, by POST with a Size, resizes the command's terminal.
	PathExecResize = "/v1/exec/{id}/resize"
	// PathExecInput, by POST, writes the body to a background command's standard input. QueryClose closes the input after it.
	PathExecInput = "/v1/exec/{id}/input"
	// PathDial, by POST, connects to a port or socket in the sandbox (QueryNetwork, QueryAddress): the body is sent to
	// it, the answer is received from it.
	PathDial = "/v1/dial"
	// PathProxied, by POST, waits for a connection to the sandbox's proxy (Config.Proxy): the answer has what its client sends, and the
	// body is sent to the client. The host ends the connection if no rule allows it.
	PathProxied = "/v1/proxied"
	// PathPorts, by GET, lists the listening ports of the sandbox.
	PathPorts = "/v1/ports"
	// PathStats, by GET, returns Stats.
	PathStats = "/v1/stats"
	// PathNetwork, by GET, returns the current Network policy; PUT replaces it at once. A guest that does not enforce
	// the network itself answers CodeUnsupported.
	PathNetwork = "/v1/network"
	// PathKeys, by PUT with Keys, replaces values of keys of models at once. A guest without a gateway to models answers
	// CodeUnsupported.
	PathKeys = "/v1/keys"
	// PathNested, by POST, creates a nested sandbox: the body goes to its guest and the answer comes from its guest, each as a stream of
	// this API. The end of the body ends the nested sandbox. When the answer ends, all processes and files of the nested sandbox are
	// gone, unless TrailerError has an error. A guest without nested sandboxes answers CodeUnsupported.
	PathNested = "/v1/lease"
	// PathAlive, by POST, is the owner's keep-alive signal. The sandbox ends itself without it.
	PathAlive = "/v1/alive"
	// PathStop, by POST, ends the sandbox and everything in it.
	PathStop = "/v1/stop"
)

// Query parameters.
const (
	QueryFrom    = "from"    // offset in a command's output, in bytes
	QueryClose   = "close"   // "1": close the input
	QueryNetwork = "network" // "tcp" or "unix"
	QueryAddress = "address" // host:port, or a path
)

// TrailerError is a trailer with an error that occurred after the answer had begun.
const TrailerError = "Sandbox-Error"

const (
	// MaxDocument is the limit of a document, in bytes. A Linux command line has at most 2 MiB.
	MaxDocument = 4 << 20
	// AliveEvery is the interval of FrameAlive, which keeps the connection of a quiet command open.
	AliveEvery = 15 * time.Second
)

// Hello describes the guest.
type Hello struct {
	Version int       `json:"version"`
	UID     int       `json:"uid"`  // of commands
	Dir     string    `json:"dir"`  // default working directory
	Home    string    `json:"home"` // the user's home
	Since   time.Time `json:"since"`
}

// Command is a command to run.
type Command struct {
	Argv []string `json:"argv"` // the program and its arguments, in UTF-8 without zero bytes
	// Dir is the working directory, absolute or relative to Hello.Dir; "" means Hello.Dir.
	Dir string   `json:"dir,omitempty"`
	Env []string `json:"env,omitempty"` // has NAME=value entries, added to the guest's environment
	// TimeoutMS ends the command and every process it started, in milliseconds; 0 means never.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Terminal, if non-nil, gives the command a terminal of this size instead of pipes. All output is then standard output.
	Terminal *Size `json:"terminal,omitempty"`
	// Background keeps the command running after its client disconnects.
	Background bool `json:"background,omitempty"`
	// Masked replaces the values of the sandbox's secrets in the output, unless it goes to a terminal.
	Masked bool `json:"masked,omitempty"`
	// KeepInput leaves the standard input open after the request's body, for PathExecInput.
	KeepInput bool `json:"keep_input,omitempty"`
}

// Check validates the command. Its error has all mistakes.
func (c Command) Check() error {
	var errs []error
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		errs = append(errs, errors.New("no command"))
	}
	for i, a := range c.Argv {
		errs = append(errs, checkText(fmt.Sprintf("argument %d", i), a))
	}
	for _, kv := range c.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("variable %q is not NAME=value", kv))
		}
		errs = append(errs, checkText("variable "+name, kv))
	}
	errs = append(errs, checkText("the directory", c.Dir))
	if c.TimeoutMS < 0 {
		errs = append(errs, fmt.Errorf("timeout must not be negative: %d ms", c.TimeoutMS))
	}
	return errors.Join(errs...)
}

func checkText(what, s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%s has a zero byte", what)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not UTF-8", what)
	}
	return nil
}

// Size is a terminal's size in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Started is the document of FrameStarted.
type Started struct {
	ID string `json:"id"` // valid until the guest ends
}

// Check returns an error for an invalid id.
func (s Started) Check() error { return checkID(s.ID) }

// maxID is the limit of an id, in bytes.
const maxID = 64

func checkID(id string) error {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return !letter(r) }) {
		return fmt.Errorf("%.*q is not a command id", maxID, id)
	}
	return nil
}

// Exit is the document of FrameExit.
type Exit struct {
	Code        int    `json:"code"`             // 128+n after signal n
	Signal      int    `json:"signal,omitempty"` // 0 unless a signal ended it
	TimedOut    bool   `json:"timed_out,omitempty"`
	OutOfMemory bool   `json:"out_of_memory,omitempty"` // the kernel killed it, or a process it started, at the sandbox's memory limit
	DurationMS  int64  `json:"duration_ms"`
	Error       string `json:"error,omitempty"` // why it did not start; Code is then 126 or 127, as in a shell
}

// Check returns an error for impossible values.
func (e Exit) Check() error {
	const most, signals = 255, 64
	if e.Code < 0 || e.Code > most || e.Signal < 0 || e.Signal > signals || e.DurationMS < 0 {
		return fmt.Errorf("invalid end of a command: code %d, signal %d, after %d ms", e.Code, e.Signal, e.DurationMS)
	}
	return nil
}

// CommandStatus is a running command or an ended background command.
type CommandStatus struct {
	ID         string    `json:"id"`
	Argv       []string  `json:"argv"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background,omitempty"`
	Output     int64     `json:"output"`         // bytes so far
	Exit       *Exit     `json:"exit,omitempty"` // nil while it runs
}

// Check returns an error for impossible values.
func (e CommandStatus) Check() error {
	err := checkID(e.ID)
	if e.Exit != nil {
		err = errors.Join(err, e.Exit.Check())
	}
	if e.Output < 0 {
		err = errors.Join(err, fmt.Errorf("invalid output of %d bytes", e.Output))
	}
	return err
}

// Signal is the document of PathExecSignal.
type Signal struct {
	Number int `json:"number"`
}

// Port is a listening port of the sandbox.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
}

// Stats is the sandbox's resource use, in bytes; -1 if the kernel does not report a value.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryLimit int64 `json:"memory_limit"`
	Processes   int64 `json:"processes"`
	CPUMicros   int64 `json:"cpu_us"`
}

// Keys are values of keys of models.
type Keys struct {
	Values map[string]string `json:"values"` // by the names of their secrets
}

// NetworkPolicy is a network policy.
type NetworkPolicy struct {
	Mode  string   `json:"mode"`            // full, restricted or none
	Allow []string `json:"allow,omitempty"` // rules of mode restricted
}

// Code is the kind of an Error.
type Code string

// Error codes.
const (
	CodeBadRequest Code = "bad_request"
	CodeNotFound   Code = "not_found"
	CodeRefused    Code = "refused"   // nothing listens at the address
	CodeExhausted  Code = "exhausted" // a limit of the sandbox is reached
	CodeDenied     Code = "denied"    // the sandbox's user may not access the file
	CodeExists     Code = "exists"    // the file exists, or the directory is not empty
	CodeFileType   Code = "kind"      // wrong file type: a directory, not a directory, or a device
	// CodeUnsupported means that this guest does not support the request.
	CodeUnsupported Code = "unsupported"
	CodeFailed      Code = "failed"
)

var codes = []Code{
	CodeBadRequest, CodeNotFound, CodeRefused, CodeExhausted, CodeDenied, CodeExists, CodeFileType, CodeUnsupported,
	CodeFailed,
}

// Error is the document of every unsuccessful answer.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"`
}

func (e *Error) Error() string { return e.Text }

// Known reports whether this version defines the code.
func (c Code) Known() bool { return slices.Contains(codes, c) }
