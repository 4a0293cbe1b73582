// Package wire is the contract between the guest of a sandbox and whoever uses the sandbox: the paths, documents and
// frames of an HTTP/2 API without TLS that any byte stream carries. A runtime only has to bring such a stream: the engine's
// stream of a command in a container, the pipe of a jail, a socket.
//
// A user begins with PathHello and goes on only with a guest of the same Version. What a guest sends is not to be
// trusted: its frames are bounded (Reader), its documents are limited by whoever reads them (MaxDocument).
package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is that of the contract. Guest and user of different versions do not talk to each other.
const Version = 1

// The paths of the API.
const (
	// PathHello, by GET, answers with a Hello.
	PathHello = "/v1/hello"
	// PathExec, by POST, runs a command: the body is one frame of FrameCommand and then the command's standard input, whose end is
	// the end of the body. The answer is frames: FrameStarted, then output, then FrameExit. When the client goes away, the command is
	// ended, unless it is of the background.
	// By GET it lists the commands that the guest knows, an Execution each.
	PathExec = "/v1/exec"
	// PathExecOf, by GET, is the output of one command from an offset (QueryFrom) and what comes after it, as frames. By DELETE it
	// ends the command and all that it started.
	PathExecOf = "/v1/exec/{id}"
	// PathExecSignal, by POST with a Signal, sends a signal to the command's process group.
	PathExecSignal = "/v1/exec/{id}/signal"
	// PathExecResize, by POST with a Size, changes the size of the command's terminal.
	PathExecResize = "/v1/exec/{id}/resize"
	// PathExecInput, by POST, writes the body to the standard input of a command of the background. With QueryClose the input ends with it.
	PathExecInput = "/v1/exec/{id}/input"
	// PathDial, by POST, connects to a port or socket in the sandbox (QueryNetwork, QueryAddress): the body goes there, the answer
	// comes from there.
	PathDial = "/v1/dial"
	// PathPorts, by GET, lists what listens in the sandbox, a Port each.
	PathPorts = "/v1/ports"
	// PathStats, by GET, answers with Stats.
	PathStats = "/v1/stats"
	// PathNetwork, by GET, answers with the Network that is in force, and by PUT with a Network replaces it at once. A guest that does not hold the network
	// itself answers CodeUnsupported.
	PathNetwork = "/v1/network"
	// PathLease, by POST, makes a lease: the request's body goes to the guest of the lease and the answer comes from it, each as a stream of this
	// same API. The lease is over with the request's body: all that ran in it is ended and all that it wrote is gone when the answer ends, or else TrailerError
	// says why not. A guest that makes none answers CodeUnsupported.
	PathLease = "/v1/lease"
	// PathAlive, by POST, is the owner's sign of life. A sandbox whose owner is silent for too long ends itself.
	PathAlive = "/v1/alive"
	// PathStop, by POST, ends the sandbox and everything in it.
	PathStop = "/v1/stop"
)

// The parameters of paths.
const (
	QueryFrom    = "from"    // offset in a command's output, in bytes
	QueryClose   = "close"   // "1": the input ends
	QueryNetwork = "network" // "tcp" or "unix"
	QueryAddress = "address" // host:port, or a path
)

// TrailerError is a trailer of an answer that had begun with success: what went wrong at its end.
const TrailerError = "Sandbox-Error"

const (
	// MaxDocument bounds a document, in bytes. A command line of Linux has at most 2 MiB.
	MaxDocument = 4 << 20
	// AliveEvery is the time between two frames of FrameAlive, so that no one in between takes a quiet command for a dead connection.
	AliveEvery = 15 * time.Second
)

// Hello is what the guest says of itself.
type Hello struct {
	Version int       `json:"version"`
	UID     int       `json:"uid"`  // of commands
	Dir     string    `json:"dir"`  // where commands begin
	Home    string    `json:"home"` // of the user
	Since   time.Time `json:"since"`
}

// Command is what runs.
type Command struct {
	// Argv has the program first. Its parts are UTF-8, without a zero byte.
	Argv []string `json:"argv"`
	// Dir is where it begins, absolute or below the guest's own; "" is that one.
	Dir string `json:"dir,omitempty"`
	// Env is NAME=value, added to the guest's.
	Env []string `json:"env,omitempty"`
	// TimeoutMS ends the command and all that it started, in milliseconds; 0 never does.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Terminal gives it a terminal of that size, whose output is all standard output; nil means pipes.
	Terminal *Size `json:"terminal,omitempty"`
	// Background lets it outlive the client that started it.
	Background bool `json:"background,omitempty"`
	// KeepInput leaves the standard input open at the end of the request's body, for PathExecInput.
	KeepInput bool `json:"keep_input,omitempty"`
}

// Check returns what keeps a command from being run, all of it.
func (c Command) Check() error {
	var errs []error
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		errs = append(errs, errors.New("there is no command"))
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
	errs = append(errs, checkText("the folder", c.Dir))
	if c.TimeoutMS < 0 {
		errs = append(errs, fmt.Errorf("a timeout of %d ms is less than nothing", c.TimeoutMS))
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

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Started is the document of FrameStarted.
type Started struct {
	ID string `json:"id"` // names the command as long as the guest lives
}

// Check returns what cannot be true of it.
func (s Started) Check() error { return checkID(s.ID) }

// maxID bounds an id, in bytes.
const maxID = 64

func checkID(id string) error {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return !letter(r) }) {
		return fmt.Errorf("%.*q is no id of a command", maxID, id)
	}
	return nil
}

// Exit is the document of FrameExit.
type Exit struct {
	Code        int    `json:"code"`             // 128+n after signal n
	Signal      int    `json:"signal,omitempty"` // 0 unless a signal ended it
	TimedOut    bool   `json:"timed_out,omitempty"`
	OutOfMemory bool   `json:"out_of_memory,omitempty"` // the kernel ended it, or something it started, for the sandbox's memory limit
	DurationMS  int64  `json:"duration_ms"`
	Error       string `json:"error,omitempty"` // why it could not be started; Code is then 126 or 127, as a shell's
}

// Check returns what cannot be true of an end.
func (e Exit) Check() error {
	const most, signals = 255, 64
	if e.Code < 0 || e.Code > most || e.Signal < 0 || e.Signal > signals || e.DurationMS < 0 {
		return fmt.Errorf("a command ended with %d, by signal %d, after %d ms", e.Code, e.Signal, e.DurationMS)
	}
	return nil
}

// Execution is a command that the guest knows: one that runs, or one of the background that has ended.
type Execution struct {
	ID         string    `json:"id"`
	Argv       []string  `json:"argv"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background,omitempty"`
	Output     int64     `json:"output"`         // bytes so far
	Exit       *Exit     `json:"exit,omitempty"` // nil while it runs
}

// Check returns what cannot be true of it.
func (e Execution) Check() error {
	err := checkID(e.ID)
	if e.Exit != nil {
		err = errors.Join(err, e.Exit.Check())
	}
	if e.Output < 0 {
		err = errors.Join(err, fmt.Errorf("a command printed %d bytes", e.Output))
	}
	return err
}

// Signal is the document of PathExecSignal.
type Signal struct {
	Number int `json:"number"`
}

// Port is what listens in the sandbox.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
}

// Stats are numbers of the sandbox, in bytes; -1 where the kernel does not tell.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryLimit int64 `json:"memory_limit"`
	Processes   int64 `json:"processes"`
	CPUMicros   int64 `json:"cpu_us"`
}

// Network is what a sandbox reaches.
type Network struct {
	Mode  string   `json:"mode"`            // full, restricted or none
	Allow []string `json:"allow,omitempty"` // rules of restricted
}

// Code says what kind of error an Error is.
type Code string

// The kinds of errors.
const (
	CodeBadRequest Code = "bad_request"
	CodeNotFound   Code = "not_found"
	CodeRefused    Code = "refused"   // nothing listens there
	CodeExhausted  Code = "exhausted" // the sandbox is at a limit of its own
	CodeDenied     Code = "denied"    // the sandbox's user has no right to the file
	CodeExists     Code = "exists"    // a file is there already, or something is in the folder
	CodeKind       Code = "kind"      // it is a folder and should be none, or the other way round, or it is a device
	// CodeUnsupported means that this guest never does that.
	CodeUnsupported Code = "unsupported"
	CodeFailed      Code = "failed"
)

var codes = []Code{CodeBadRequest, CodeNotFound, CodeRefused, CodeExhausted, CodeDenied, CodeExists, CodeKind, CodeUnsupported, CodeFailed}

// Error is the document of every answer that is no success.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"`
}

func (e *Error) Error() string { return e.Text }

// Known reports whether the code is one of this version's.
func (c Code) Known() bool { return slices.Contains(codes, c) }
