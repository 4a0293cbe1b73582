package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Paths of sessions: interpreters that keep their state.
const (
	// PathSessions, by POST with a SessionSpec, returns the Session of its ID and starts it if it does not exist. By
	// GET it lists all sessions.
	PathSessions = "/v1/sessions"
	// PathSession, by DELETE, ends a session with every process that it started.
	PathSession = "/v1/sessions/{id}"
	// PathSessionRun, by POST, runs code: the body is one FrameCell, then the code. The answer has frames of output as it arrives,
	// FrameDisplay, and FrameCellEnd, always last. Cells run one at a time; others wait. Closing the request interrupts its cell.
	PathSessionRun = "/v1/sessions/{id}/run"
	// PathSessionInterrupt, by POST, interrupts the running cell, as Ctrl-C does.
	PathSessionInterrupt = "/v1/sessions/{id}/interrupt"
)

// Drivers of interpreters.
const (
	DriverPython  = "python"
	DriverNode    = "node"
	DriverBash    = "bash"
	DriverIPython = "ipython" // with magics and rich output
	DriverJupyter = "jupyter" // any kernel in the sandbox
)

// Drivers returns all drivers.
func Drivers() []string {
	return []string{DriverPython, DriverNode, DriverBash, DriverIPython, DriverJupyter}
}

// MaxCode is the limit of a cell's code, in bytes.
const MaxCode = 32 << 20

var sessionID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// SessionSpec describes a session's interpreter.
type SessionSpec struct {
	ID     string `json:"id"`
	Driver string `json:"driver"`
	// Argv is the interpreter's program and first arguments; empty means the driver's own, from PATH.
	Argv   []string `json:"argv,omitempty"`
	Kernel string   `json:"kernel,omitempty"` // the kernel's name for DriverJupyter; "" means python3
	// Dir is the working directory, absolute or relative to Hello.Dir; "" means Hello.Dir.
	Dir string   `json:"dir,omitempty"`
	Env []string `json:"env,omitempty"` // has NAME=value entries, added to the guest's environment
}

// Check validates the spec. Its error has all mistakes.
func (s SessionSpec) Check() error {
	var errs []error
	if !sessionID.MatchString(s.ID) {
		errs = append(errs, fmt.Errorf("session id %.80q: use at most 64 letters, digits, dots, - and _, a letter or digit first", s.ID))
	}
	if !slices.Contains(Drivers(), s.Driver) {
		errs = append(errs, fmt.Errorf("driver %.80q: use one of %v", s.Driver, Drivers()))
	}
	if s.Kernel != "" && s.Driver != DriverJupyter {
		errs = append(errs, fmt.Errorf("kernel %.80q: only the driver %s has kernels", s.Kernel, DriverJupyter))
	}
	if s.Kernel != "" && !sessionID.MatchString(s.Kernel) {
		errs = append(errs, fmt.Errorf("kernel %.80q is not a kernel name", s.Kernel))
	}
	argv := s.Argv
	if len(argv) == 0 {
		argv = []string{"x"}
	}
	return errors.Join(append(errs, Command{Argv: argv, Dir: s.Dir, Env: s.Env}.Check())...)
}

// Session describes a running session.
type Session struct {
	ID      string    `json:"id"`
	Driver  string    `json:"driver"`
	Started time.Time `json:"started"`
	Used    time.Time `json:"used"` // last use
	Cells   int       `json:"cells"`
	Busy    bool      `json:"busy,omitempty"`
	Fresh   bool      `json:"fresh,omitempty"` // this request started it
}

// Check returns an error for impossible values.
func (s Session) Check() error {
	if !sessionID.MatchString(s.ID) || !slices.Contains(Drivers(), s.Driver) || s.Cells < 0 {
		return fmt.Errorf("invalid session %.80q with driver %.80q", s.ID, s.Driver)
	}
	return nil
}

// Cell says how to run code.
type Cell struct {
	// TimeoutMS interrupts the cell, in milliseconds; 0 means never. The session ends if the cell continues.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Display is rich output by MIME type: text or JSON.
type Display struct {
	Data     map[string]json.RawMessage `json:"data"`
	Metadata json.RawMessage            `json:"metadata,omitempty"`
	Result   bool                       `json:"result,omitempty"` // it is the value of the cell's last expression
}

// CellEnd is the outcome of a cell.
type CellEnd struct {
	OK          bool   `json:"ok"`
	Value       string `json:"value,omitempty"` // the printed value of the last expression; "" if there is none
	Error       string `json:"error,omitempty"` // the name of the exception, and Message its text, as in notebooks
	Message     string `json:"message,omitempty"`
	Code        int    `json:"code"` // 0, 1 after an exception, or the code's exit code
	TimedOut    bool   `json:"timed_out,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
	Ended       bool   `json:"ended,omitempty"` // the interpreter ended and its state is lost
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
	DurationMS  int64  `json:"duration_ms"`
}

// Check returns an error for impossible values.
func (e CellEnd) Check() error {
	const most = 255
	if e.Code < 0 || e.Code > most || e.DurationMS < 0 {
		return fmt.Errorf("invalid end of a cell: code %d after %d ms", e.Code, e.DurationMS)
	}
	return nil
}
