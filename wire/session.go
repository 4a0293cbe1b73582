package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// The paths of sessions: interpreters that stay, and remember.
const (
	// PathSessions, by POST with a SessionSpec, answers with the Session of its ID, which is started if it is not there. By GET it lists all, a Session each.
	PathSessions = "/v1/sessions"
	// PathSession, by DELETE, ends one with everything that it started.
	PathSession = "/v1/sessions/{id}"
	// PathSessionRun, by POST, runs code: the body is one frame of FrameCell and then the code. The answer is frames of output as it comes, FrameDisplay, and
	// FrameCellEnd, always the last one. One cell runs at a time, others wait. When the client goes away, its cell is interrupted.
	PathSessionRun = "/v1/sessions/{id}/run"
	// PathSessionInterrupt, by POST, interrupts what runs, as Ctrl-C does.
	PathSessionInterrupt = "/v1/sessions/{id}/interrupt"
)

// The drivers of interpreters.
const (
	DriverPython  = "python"
	DriverNode    = "node"
	DriverBash    = "bash"
	DriverIPython = "ipython" // magics and rich output
	DriverJupyter = "jupyter" // any kernel that the sandbox has
)

// Drivers are all of them.
func Drivers() []string {
	return []string{DriverPython, DriverNode, DriverBash, DriverIPython, DriverJupyter}
}

// MaxCode bounds the code of a cell, in bytes.
const MaxCode = 32 << 20

var sessionID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// SessionSpec asks for an interpreter.
type SessionSpec struct {
	ID     string `json:"id"`
	Driver string `json:"driver"`
	// Argv is the interpreter's program with its first arguments; empty means the driver's own, from PATH.
	Argv []string `json:"argv,omitempty"`
	// Kernel is the name of the kernel of DriverJupyter; "" means python3.
	Kernel string `json:"kernel,omitempty"`
	// Dir is where it begins, absolute or below the guest's own; "" is that one.
	Dir string `json:"dir,omitempty"`
	// Env is NAME=value, added to the guest's.
	Env []string `json:"env,omitempty"`
}

// Check returns what keeps it from being started, all of it.
func (s SessionSpec) Check() error {
	var errs []error
	if !sessionID.MatchString(s.ID) {
		errs = append(errs, fmt.Errorf("session id %.80q: use letters, digits, dot, - and _, a letter or digit first, 64 at most", s.ID))
	}
	if !slices.Contains(Drivers(), s.Driver) {
		errs = append(errs, fmt.Errorf("driver %.80q: use one of %v", s.Driver, Drivers()))
	}
	if s.Kernel != "" && s.Driver != DriverJupyter {
		errs = append(errs, fmt.Errorf("kernel %.80q: only the driver %s has kernels", s.Kernel, DriverJupyter))
	}
	if s.Kernel != "" && !sessionID.MatchString(s.Kernel) {
		errs = append(errs, fmt.Errorf("kernel %.80q is no name of one", s.Kernel))
	}
	argv := s.Argv
	if len(argv) == 0 {
		argv = []string{"x"}
	}
	return errors.Join(append(errs, Command{Argv: argv, Dir: s.Dir, Env: s.Env}.Check())...)
}

// Session is one that is there.
type Session struct {
	ID      string    `json:"id"`
	Driver  string    `json:"driver"`
	Started time.Time `json:"started"`
	Used    time.Time `json:"used"` // last
	Cells   int       `json:"cells"`
	Busy    bool      `json:"busy,omitempty"`
	// Fresh reports that it was started for this request.
	Fresh bool `json:"fresh,omitempty"`
}

// Check returns what cannot be true of it.
func (s Session) Check() error {
	if !sessionID.MatchString(s.ID) || !slices.Contains(Drivers(), s.Driver) || s.Cells < 0 {
		return fmt.Errorf("%.80q, %.80q is no session", s.ID, s.Driver)
	}
	return nil
}

// Cell is how code runs.
type Cell struct {
	// TimeoutMS interrupts it, in milliseconds; 0 never does. A cell that does not end by that costs the session.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Display is something to look at, by MIME type: text, or JSON.
type Display struct {
	Data     map[string]json.RawMessage `json:"data"`
	Metadata json.RawMessage            `json:"metadata,omitempty"`
	// Result reports that it is the value of the cell's last expression.
	Result bool `json:"result,omitempty"`
}

// CellEnd is how a cell ended.
type CellEnd struct {
	OK bool `json:"ok"`
	// Value is the last expression's, as the interpreter shows it; "" for none.
	Value string `json:"value,omitempty"`
	// Error is the name of the error that ended it, and Message what it says, as notebooks have both.
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	// Code is 0, 1 for an error, or what exited with.
	Code        int  `json:"code"`
	TimedOut    bool `json:"timed_out,omitempty"`
	Interrupted bool `json:"interrupted,omitempty"`
	// Ended reports that the interpreter is gone, and with it all that it remembered.
	Ended       bool  `json:"ended,omitempty"`
	OutOfMemory bool  `json:"out_of_memory,omitempty"`
	DurationMS  int64 `json:"duration_ms"`
}

// Check returns what cannot be true of it.
func (e CellEnd) Check() error {
	const most = 255
	if e.Code < 0 || e.Code > most || e.DurationMS < 0 {
		return fmt.Errorf("a cell ended with %d after %d ms", e.Code, e.DurationMS)
	}
	return nil
}
