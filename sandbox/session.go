package sandbox

import (
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

// Driver is how a session's interpreter is run.
type Driver string

// The drivers.
const (
	DriverPython Driver = wire.DriverPython // python3
	DriverNode   Driver = wire.DriverNode
	DriverBash   Driver = wire.DriverBash
	// DriverIPython has magics and rich output, as pictures; the sandbox has IPython.
	DriverIPython Driver = wire.DriverIPython
	// DriverJupyter runs a kernel of Jupyter; the sandbox has jupyter_client and the kernel.
	DriverJupyter Driver = wire.DriverJupyter
)

// Drivers are all.
func Drivers() []Driver {
	return []Driver{DriverPython, DriverNode, DriverBash, DriverIPython, DriverJupyter}
}

// SessionOptions describe an interpreter.
type SessionOptions struct {
	// ID is letters, digits, dot, - and _, a letter or digit first, 64 at most; "" draws one.
	ID string
	// Driver is one of this package's.
	Driver Driver
	// Kernel is the name of the kernel of DriverJupyter; "" means python3.
	Kernel string
	// Argv is the interpreter's program with its first arguments, in place of the driver's own.
	Argv []string
	// Env is NAME=value, added to the sandbox's.
	Env []string
	// Dir is where it begins, absolute or below the sandbox's; "" is that one.
	Dir string
}

// Interpreter is a session in a sandbox, which remembers from cell to cell. It ends with Close, with its own code's wish, and with the sandbox. Its methods may be called concurrently.
type Interpreter struct {
	on   guest
	info wire.Session
}

// guest is whatever has sessions.
type guest interface {
	use(ctx context.Context, f func(*wireclient.Client) error) error
}

// Session is the session of an ID, which is started if it is not there: see Fresh. One of that ID with another driver is ErrExists.
func (sb *Sandbox) Session(ctx context.Context, o SessionOptions) (*Interpreter, error) {
	return openSession(ctx, sb, o)
}

// Session is Sandbox.Session.
func (l *Lease) Session(ctx context.Context, o SessionOptions) (*Interpreter, error) {
	return openSession(ctx, l.in, o)
}

func openSession(ctx context.Context, on guest, o SessionOptions) (*Interpreter, error) {
	if o.ID == "" {
		o.ID = strings.ToLower(rand.Text())
	}
	spec := wire.SessionSpec{ID: o.ID, Driver: string(o.Driver), Argv: o.Argv, Kernel: o.Kernel, Dir: o.Dir, Env: o.Env}
	if err := spec.Check(); err != nil {
		return nil, &kindError{ErrSpec, err}
	}
	s := &Interpreter{on: on}
	err := on.use(ctx, func(c *wireclient.Client) (err error) {
		s.info, err = c.OpenSession(ctx, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// SessionInfo is a row of Sessions.
type SessionInfo struct {
	ID      string    `json:"id"`
	Driver  Driver    `json:"driver"`
	Started time.Time `json:"started"`
	Used    time.Time `json:"used"` // last
	Cells   int       `json:"cells"`
	Busy    bool      `json:"busy"`
}

// Sessions are those that run in the sandbox, oldest first.
func (sb *Sandbox) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var list []wire.Session
	err := sb.use(ctx, func(c *wireclient.Client) (err error) {
		list, err = c.Sessions(ctx)
		return err
	})
	all := make([]SessionInfo, 0, len(list))
	for _, s := range list {
		all = append(all, SessionInfo{ID: s.ID, Driver: Driver(s.Driver), Started: s.Started, Used: s.Used, Cells: s.Cells, Busy: s.Busy})
	}
	return all, err
}

// ID names the session in its sandbox.
func (s *Interpreter) ID() string { return s.info.ID }

// Driver is the session's.
func (s *Interpreter) Driver() Driver { return Driver(s.info.Driver) }

// Fresh reports that it was started by the call that returned it.
func (s *Interpreter) Fresh() bool { return s.info.Fresh }

// Cell is code that runs in a session.
type Cell struct {
	Code string
	// Timeout interrupts it, and what the session remembers stays; 0 never does. A cell that goes on for two seconds after that costs the session.
	Timeout time.Duration
	// MaxOutput bounds each stream of a CellResult, as Command.MaxOutput does.
	MaxOutput int
	// Display takes rich output as it comes; nil drops it.
	Display func(Display)
	// Stdout and Stderr take output as it comes, and then it is not in the CellResult; nil collects it there.
	Stdout, Stderr io.Writer
}

// Display is something to look at.
type Display struct {
	// Data are the same thing by MIME type: a text, base64 of a picture, or JSON.
	Data     map[string]json.RawMessage
	Metadata json.RawMessage
	// Result reports that it is the value of the cell's last expression.
	Result bool
}

// CellResult is how a cell ended: one that fails is no error.
type CellResult struct {
	Stdout, Stderr []byte
	// Truncated reports that more was printed than MaxOutput.
	Truncated bool
	OK        bool
	// Value is the last expression's, as the interpreter shows it; "" for none.
	Value string
	// Error is the name of what was raised, and Message what it says; its traceback is on standard error.
	Error, Message string
	// ExitCode is 0, 1 for an error, or what the code exited with; of bash that of its last command.
	ExitCode    int
	TimedOut    bool
	Interrupted bool
	// Ended reports that the interpreter is gone, and with it all that it remembered.
	Ended       bool
	OutOfMemory bool
	Duration    time.Duration
}

// Run runs a cell to its end. Cells of a session run one at a time: others wait. When ctx ends, the cell is interrupted.
func (s *Interpreter) Run(ctx context.Context, c Cell) (CellResult, error) {
	most := c.MaxOutput
	if most == 0 {
		most = DefaultMaxOutput
	}
	out, errOut := text.NewEnds(most), text.NewEnds(most)
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
	var end wire.CellEnd
	err := s.on.use(ctx, func(client *wireclient.Client) (err error) {
		end, err = client.RunCell(ctx, s.info.ID, wire.Cell{TimeoutMS: timeout(c.Timeout)}, strings.NewReader(c.Code), c.Stdout, c.Stderr, show)
		return err
	})
	if err != nil {
		return CellResult{}, err
	}
	return CellResult{
		Stdout: out.Bytes(), Stderr: errOut.Bytes(), Truncated: out.Cut() || errOut.Cut(), OK: end.OK, Value: end.Value, Error: end.Error, Message: end.Message, ExitCode: end.Code, TimedOut: end.TimedOut,
		Interrupted: end.Interrupted, Ended: end.Ended, OutOfMemory: end.OutOfMemory, Duration: time.Duration(end.DurationMS) * time.Millisecond,
	}, nil
}

// Interrupt interrupts what runs, as Ctrl-C does. That nothing runs is not an error.
func (s *Interpreter) Interrupt(ctx context.Context) error {
	return s.on.use(ctx, func(c *wireclient.Client) error { return c.InterruptSession(ctx, s.info.ID) })
}

// Close ends the session with everything that it started. One that has ended is ErrNotFound.
func (s *Interpreter) Close(ctx context.Context) error {
	return s.on.use(ctx, func(c *wireclient.Client) error { return c.EndSession(ctx, s.info.ID) })
}
