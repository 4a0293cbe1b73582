// Package poolserver lends the sandboxes of a pool to programs of any language, over HTTP on a socket of this user and, where asked, on the loopback with a token.
//
//	GET    /v1/stats             Stats
//	POST   /v1/leases            Request -> Lease
//	GET    /v1/leases            all that are lent, a Lease each
//	POST   /v1/leases/{id}/exec  Exec -> Result, or lines of Output with Exec.Stream or Accept: application/x-ndjson
//	DELETE /v1/leases/{id}       gives it back; with ?destroy=1 its sandbox is removed
//	DELETE /v1/leases            removes all sandboxes, lent and idle
//
// Documents are JSON; an unknown field is an error. An answer that is no success has an Error.
package poolserver

import (
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// Request asks for a lease.
type Request struct {
	pool.Spec
	// Name is for people who look at what is lent; it need not be unique.
	Name string `json:"name,omitempty"`
}

var lease = regexp.MustCompile(`^L-[a-z0-9]{1,40}$`)

// ValidLease reports whether a lease can have the ID.
func ValidLease(id string) bool { return lease.MatchString(id) }

// Lease is one that is lent.
type Lease struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since"`
	// Status is idle or busy, whether a command runs in it.
	Status string `json:"status"`
}

// Exec is a command: Argv, or Command for a shell.
type Exec struct {
	Argv    []string `json:"argv,omitempty"`
	Command string   `json:"command,omitempty"` // a script for sh -c
	Dir     string   `json:"cwd,omitempty"`     // "" is /workspace
	Env     []string `json:"env,omitempty"`     // NAME=value
	Stdin   string   `json:"stdin,omitempty"`
	// StdinBytes is Stdin that need not be a text.
	StdinBytes []byte `json:"stdin_base64,omitempty"`
	// TimeoutSeconds ends it with everything it started; 0 means 300.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// MaxOutput bounds each stream, in bytes, up to 64 MiB; 0 means 1 MiB.
	MaxOutput int `json:"max_output,omitempty"`
	// Stream asks for all output, as it comes: the answer is an Output on each line.
	Stream bool `json:"stream,omitempty"`
}

// Output is a part of what a command printed, or how it ended. The last one of an answer has a Result or an Error.
type Output struct {
	Stdout []byte  `json:"stdout_base64,omitempty"`
	Stderr []byte  `json:"stderr_base64,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// Result is how a command ended: one that fails is no error.
type Result struct {
	ExitCode int    `json:"exit_code"` // as a shell's
	Stdout   string `json:"stdout"`    // what is not UTF-8 is replaced
	Stderr   string `json:"stderr"`
	// StdoutBytes and StderrBytes are Stdout and Stderr as they are, where those are not UTF-8.
	StdoutBytes []byte `json:"stdout_base64,omitempty"`
	StderrBytes []byte `json:"stderr_base64,omitempty"`
	Signal      int    `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
	DurationMS  int64  `json:"duration_ms"`
	Error       string `json:"error,omitempty"` // why it could not be started
}

// Output is what the command printed on standard output, as it is.
func (r Result) Output() []byte { return either(r.StdoutBytes, r.Stdout) }

// Errors is what the command printed on standard error, as it is.
func (r Result) Errors() []byte { return either(r.StderrBytes, r.Stderr) }

func either(exact []byte, valid string) []byte {
	if exact != nil {
		return exact
	}
	return []byte(valid)
}

func resultOf(r sandbox.RunResult) Result {
	exact := func(b []byte) []byte {
		if utf8.Valid(b) {
			return nil
		}
		return b
	}
	return Result{
		ExitCode: r.ExitCode, Stdout: string(r.Stdout), Stderr: string(r.Stderr), StdoutBytes: exact(r.Stdout), StderrBytes: exact(r.Stderr), Signal: int(r.Signal), TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory, Truncated: r.Truncated,
		DurationMS: r.Duration.Milliseconds(), Error: r.Reason,
	}
}

// Kind says what kind of error an Error is.
type Kind string

// The kinds of errors.
const (
	KindInvalid     Kind = "invalid"     // 400
	KindNotFound    Kind = "not_found"   // 404: no such lease or image
	KindLimit       Kind = "limit"       // 429
	KindUnsupported Kind = "unsupported" // 501
	KindUnavailable Kind = "unavailable" // 503: the engine does not answer, or the pool ends
	KindFailed      Kind = "failed"      // 500
)

// Error is the document of an answer that is no success.
type Error struct {
	Kind Kind   `json:"kind"`
	Text string `json:"error"`
}

func (e *Error) Error() string { return e.Text }
