// Package poolserver lends the sandboxes of a pool to programs of any language, over HTTP on a socket of this user and, where asked, on the loopback with a token.
//
//	GET    /v1/stats             Stats
//	POST   /v1/leases            Request -> Lease
//	GET    /v1/leases            all that are lent, a Lease each
//	POST   /v1/leases/{id}/exec  Exec -> Result
//	DELETE /v1/leases/{id}       gives it back; with ?destroy=1 its sandbox is removed
//	DELETE /v1/leases            removes all sandboxes, lent and idle
//
// Documents are JSON; an unknown field is an error. An answer that is no success has an Error.
package poolserver

import (
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// Request asks for a lease.
type Request struct {
	pool.Spec
	// Name is for people who look at what is lent; it need not be unique.
	Name string `json:"name,omitempty"`
}

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
}

// Result is how a command ended: one that fails is no error.
type Result struct {
	ExitCode    int    `json:"exit_code"` // as a shell's
	Stdout      string `json:"stdout"`    // what is not UTF-8 is replaced
	Stderr      string `json:"stderr"`
	Signal      int    `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
	DurationMS  int64  `json:"duration_ms"`
	Error       string `json:"error,omitempty"` // why it could not be started
}

// resultOf is a Result.
func resultOf(r sandbox.Result) Result {
	return Result{
		ExitCode: r.ExitCode, Stdout: string(r.Stdout), Stderr: string(r.Stderr), Signal: int(r.Signal), TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory, Truncated: r.Truncated,
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
