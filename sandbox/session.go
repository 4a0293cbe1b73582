package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Driver is the type of a session's interpreter.
type Driver string

// Drivers.
const (
	DriverPython Driver = wire.DriverPython // python3
	DriverNode   Driver = wire.DriverNode
	DriverBash   Driver = wire.DriverBash
	// DriverIPython has magics and rich output such as pictures. The sandbox needs IPython.
	DriverIPython Driver = wire.DriverIPython
	// DriverJupyter runs a Jupyter kernel. The sandbox needs jupyter_client and the kernel.
	DriverJupyter Driver = wire.DriverJupyter
)

// Drivers returns all drivers.
func Drivers() []Driver {
	return []Driver{DriverPython, DriverNode, DriverBash, DriverIPython, DriverJupyter}
}

// SessionOptions describe an interpreter session.
type SessionOptions struct {
	// ID has at most 64 letters, digits, dots, - and _, with a letter or digit first; "" means a random one.
	ID string
	// Driver selects the interpreter.
	Driver Driver
	Kernel string   // the kernel's name for DriverJupyter; "" means python3
	Argv   []string // the interpreter's program and first arguments; nil means the driver's
	Env    []string // has NAME=value entries, added to the sandbox's environment
	Dir    string   // the working directory, absolute or relative to the sandbox's; "" means the sandbox's
}

// Session is an interpreter session in a sandbox, which keeps its state from cell to cell. It ends with Close, when
// its code exits, and with the sandbox. Its methods may be called concurrently.
type Session struct {
	in   *instance
	info wire.Session
}

func openSession(ctx context.Context, in *instance, o SessionOptions) (*Session, error) {
	if o.ID == "" {
		o.ID = strings.ToLower(rand.Text())
	}
	spec := wire.SessionSpec{ID: o.ID, Driver: string(o.Driver), Argv: o.Argv, Kernel: o.Kernel, Dir: o.Dir, Env: o.Env}
	if err := spec.Check(); err != nil {
		return nil, &kindError{ErrInvalidSpec, err}
	}
	info, err := query(ctx, in, func(c *wireclient.Client) (wire.Session, error) { return c.OpenSession(ctx, spec) })
	if err != nil {
		return nil, err
	}
	return &Session{in: in, info: info}, nil
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID      string    `json:"id"`
	Driver  Driver    `json:"driver"`
	Started time.Time `json:"started"`
	Used    time.Time `json:"used"` // last use
	Cells   int       `json:"cells"`
	Busy    bool      `json:"busy"`
}

// Sessions lists the sandbox's running sessions, oldest first.
func (sb *Sandbox) Sessions(ctx context.Context) ([]SessionInfo, error) {
	list, err := query(ctx, sb.in, func(c *wireclient.Client) ([]wire.Session, error) { return c.Sessions(ctx) })
	all := make([]SessionInfo, 0, len(list))
	for _, s := range list {
		all = append(all, SessionInfo{ID: s.ID, Driver: Driver(s.Driver), Started: s.Started, Used: s.Used, Cells: s.Cells, Busy: s.Busy})
	}
	return all, err
}

// ID returns the session's id, which is unique in its sandbox.
func (s *Session) ID() string { return s.info.ID }

// Driver returns the session's driver.
func (s *Session) Driver() Driver { return Driver(s.info.Driver) }

// Created reports whether the call that returned the session started it.
func (s *Session) Created() bool { return s.info.Fresh }

// Cell is code to run in a session.
type Cell struct {
	Code string
	// Timeout interrupts the cell; the session keeps its state. 0 means no timeout. The session ends if the cell
	// continues for two more seconds.
	Timeout   time.Duration
	MaxOutput int // limits each stream of a CellResult, as Command.MaxOutput does
	// Display, if non-nil, receives rich output as it arrives.
	Display func(Display)
	// Stdout and Stderr, if non-nil, receive output as it arrives; the CellResult does not contain it then.
	Stdout, Stderr io.Writer
}

// Display is rich output of a cell.
type Display struct {
	// Data has equivalent representations by MIME type: text, a picture in base64, or JSON.
	Data     map[string]json.RawMessage
	Metadata json.RawMessage
	Result   bool // it is the value of the cell's last expression
}

// CellResult is the outcome of a cell. A failed cell is not an error.
type CellResult struct {
	ExitStatus
	Stdout, Stderr []byte
	OK             bool
	Value          string // the printed value of the last expression; "" if there is none
	// Error is the name of the raised exception, and Message its text. The traceback is in Stderr.
	Error, Message string
	Interrupted    bool
	Ended          bool // the interpreter ended and its state is lost
	Duration       time.Duration
}

// Run runs a cell to its end. Cells of a session run one at a time; others wait. The end of ctx interrupts the cell.
func (s *Session) Run(ctx context.Context, c Cell) (CellResult, error) {
	limit := cmp.Or(c.MaxOutput, DefaultMaxOutput)
	out, errOut := text.NewHeadTail(limit), text.NewHeadTail(limit)
	if c.Stdout == nil {
		c.Stdout = out
	}
	if c.Stderr == nil {
		c.Stderr = errOut
	}
	var show func(wire.Display)
	if c.Display != nil {
		show = func(d wire.Display) { c.Display(Display(d)) }
	}
	end, err := query(ctx, s.in, func(client *wireclient.Client) (wire.CellEnd, error) {
		return client.RunCell(ctx, s.info.ID, wire.Cell{TimeoutMS: timeout(c.Timeout)}, strings.NewReader(c.Code), c.Stdout, c.Stderr, show)
	})
	if err != nil {
		return CellResult{}, err
	}
	return CellResult{
		Stdout: out.Bytes(), Stderr: errOut.Bytes(), OK: end.OK, Value: end.Value, Error: end.Error, Message: end.Message,
		Interrupted: end.Interrupted, Ended: end.Ended, Duration: time.Duration(end.DurationMS) * time.Millisecond,
		ExitStatus: ExitStatus{
			ExitCode: end.Code, TimedOut: end.TimedOut, OutOfMemory: end.OutOfMemory, Truncated: out.Cut() || errOut.Cut(),
		},
	}, nil
}

// Interrupt interrupts the running cell, as Ctrl-C does. It is not an error if none runs.
func (s *Session) Interrupt(ctx context.Context) error {
	return s.in.use(ctx, func(c *wireclient.Client) error { return c.InterruptSession(ctx, s.info.ID) })
}

// Close ends the session with every process that it started. An ended session is an ErrNotFound.
func (s *Session) Close(ctx context.Context) error {
	return s.in.use(ctx, func(c *wireclient.Client) error { return c.EndSession(ctx, s.info.ID) })
}
