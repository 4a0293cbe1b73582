package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// DefaultMaxOutput bounds each stream of a Result, in bytes.
const DefaultMaxOutput = 1 << 20

// Command is what runs in a sandbox.
type Command struct {
	// Argv has the program first. No shell is between.
	Argv []string
	// Dir is where it begins, absolute or below the sandbox's; "" is that one.
	Dir string
	// Env is NAME=value, added to the sandbox's.
	Env []string
	// Stdin is copied to it; nil is an empty one. When the command has ended, a pending read of it is not waited for.
	Stdin io.Reader
	// Timeout ends the command and everything it started, whatever that did to get away; 0 never does. It is the sandbox's clock. A sandbox that says nothing for some
	// seconds more is not waited for.
	Timeout time.Duration
	// MaxOutput bounds each stream of a Result, in bytes: three quarters of it are the beginning, the rest is the end. 0 means
	// DefaultMaxOutput, NoLimit all.
	MaxOutput int
	// Background lets it outlive the connection of who started it: see Start and Attach.
	Background bool
	// Terminal gives it a terminal of that size; nil means pipes.
	Terminal *Size
	// Unrecorded keeps it out of the sandbox's history: nobody has asked for it, a program needs it for something else.
	Unrecorded bool
}

// Size is that of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Result is how a command ended.
type Result struct {
	Stdout []byte // of Run; with a Terminal all output
	Stderr []byte
	// Truncated reports that more was printed than MaxOutput.
	Truncated bool
	ExitCode  int // as a shell's: 128+n after signal n, 127 for a program that is not there, 126 for one that cannot be run
	Signal    syscall.Signal
	TimedOut  bool
	// OutOfMemory reports that the kernel ended the command, or something it started, for the sandbox's memory limit.
	OutOfMemory bool
	Duration    time.Duration
	// ID was the command's, for Attach.
	ID string
	// Reason is why the command could not be started, or how it ended is not known; "" if neither.
	Reason string
}

// Check returns what keeps the command from being run, all of it: an ErrSpec.
func (c Command) Check() error {
	if err := c.wire().Check(); err != nil {
		return fmt.Errorf("command is %w: %w", ErrSpec, err)
	}
	return nil
}

func (c Command) wire() wire.Command {
	what := wire.Command{Argv: c.Argv, Dir: c.Dir, Env: c.Env, TimeoutMS: timeout(c.Timeout), Background: c.Background}
	if c.Terminal != nil {
		what.Terminal = &wire.Size{Rows: c.Terminal.Rows, Cols: c.Terminal.Cols}
	}
	return what
}

// Run runs a command to its end. A command that fails is no error: see Result.ExitCode. When ctx ends, the command is ended, unless it is of
// the background.
func (sb *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	p, err := sb.Start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	most := c.MaxOutput
	if most == 0 {
		most = DefaultMaxOutput
	}
	out, errOut := text.NewEnds(most), text.NewEnds(most)
	r, err := p.Wait(ctx, out, errOut)
	if err != nil {
		return Result{}, err
	}
	r.Stdout, r.Stderr, r.Truncated = out.Bytes(), errOut.Bytes(), out.Cut() || errOut.Cut()
	return r, nil
}

// Start starts a command. The caller calls Wait or Close of the Process.
func (sb *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	what := c.wire()
	var p *Process
	begun := time.Now()
	err := sb.use(ctx, func(client *wireclient.Client) error {
		started, err := client.Start(ctx, what, c.Stdin)
		p = &Process{client: client, p: started, began: begun}
		return err
	})
	if errors.Is(err, wireclient.ErrLate) && !c.Background {
		return &Process{client: p.client, p: &wireclient.Process{}, late: true, began: begun}, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case c.Unrecorded:
	case c.Background:
		sb.note(registry.Event{Event: registry.Executed, Program: c.Argv[0], Background: true})
	default:
		p.sb, p.program = sb, c.Argv[0]
	}
	return p, nil
}

// timeout in milliseconds; one that is shorter is not none.
func timeout(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// Attach is a command's output from an offset in bytes on, and whatever comes after it: of one that runs, or of one of the background that
// has ended. id may be the beginning of one.
func (sb *Sandbox) Attach(ctx context.Context, id string, from int64) (*Process, error) {
	var p *Process
	err := sb.use(ctx, func(client *wireclient.Client) error {
		attached, err := client.Attach(ctx, id, from)
		p = &Process{client: client, p: attached}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Commands are those that run, and the last of the background that have ended, oldest first.
func (sb *Sandbox) Commands(ctx context.Context) ([]CommandInfo, error) {
	var list []wire.Execution
	err := sb.use(ctx, func(client *wireclient.Client) (err error) {
		list, err = client.List(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return commandInfos(list), nil
}

func commandInfos(list []wire.Execution) []CommandInfo {
	all := make([]CommandInfo, 0, len(list))
	for _, e := range list {
		i := CommandInfo{ID: e.ID, Argv: e.Argv, Started: e.Started, Background: e.Background, Output: e.Output, Running: e.Exit == nil}
		if e.Exit != nil {
			i.ExitCode = e.Exit.Code
		}
		all = append(all, i)
	}
	return all
}

// CommandInfo is a row of Commands.
type CommandInfo struct {
	ID         string    `json:"id"`
	Argv       []string  `json:"argv"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background"`
	Running    bool      `json:"running"`
	ExitCode   int       `json:"exit_code"` // once it does not run any more
	Output     int64     `json:"output"`    // bytes so far
}

// Dial connects to a port (tcp, host:port) or a socket (unix, path) in the sandbox, whatever its network. ctx bounds the attempt, not the connection,
// which has no deadlines.
func (sb *Sandbox) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := sb.use(ctx, func(client *wireclient.Client) (err error) {
		conn, err = client.Dial(ctx, network, address)
		return err
	})
	return conn, err
}

// lateReason is that of a command whose sandbox is paused, or stuck, and lateCode its exit code, as GNU timeout has it.
const (
	lateReason = "the sandbox did not answer within the command's timeout: whether the command has ended is not known"
	lateCode   = 124
)

// Process is a command that was started, or attached to.
type Process struct {
	client  *wireclient.Client
	p       *wireclient.Process
	late    bool     // the sandbox did not answer within the command's timeout
	sb      *Sandbox // that notes the end; nil where another does
	program string
	began   time.Time
	lost    func(bytes int64)
}

// OnLost makes Wait report, before what comes after them, how many bytes of the output the sandbox does not keep any more. It is called before Wait.
func (p *Process) OnLost(report func(bytes int64)) { p.lost = report }

// ID names the command for Attach, as long as the sandbox runs.
func (p *Process) ID() string { return p.p.ID() }

// Wait passes output on until the command ends; a writer that is nil drops its stream. When ctx ends, or a writer fails, a command that Start
// has started is ended, unless it is of the background. It is called once.
func (p *Process) Wait(ctx context.Context, stdout, stderr io.Writer) (Result, error) {
	var lost int64
	var exit wire.Exit
	var err error
	if !p.late {
		exit, err = p.p.Follow(ctx, stdout, stderr, func(n int64) {
			lost += n
			if p.lost != nil {
				p.lost(n)
			}
		})
	}
	if p.late || errors.Is(err, wireclient.ErrLate) {
		return Result{ID: p.ID(), ExitCode: lateCode, TimedOut: true, Truncated: lost > 0, Duration: time.Since(p.began), Reason: lateReason}, nil
	}
	if err != nil {
		return Result{}, public(err)
	}
	if p.sb != nil {
		p.sb.note(registry.Event{Event: registry.Executed, Program: p.program, Code: &exit.Code, Millis: exit.DurationMS})
	}
	return Result{
		ID: p.ID(), ExitCode: exit.Code, Signal: syscall.Signal(exit.Signal), TimedOut: exit.TimedOut, OutOfMemory: exit.OutOfMemory,
		Duration: time.Duration(exit.DurationMS) * time.Millisecond, Reason: exit.Error, Truncated: lost > 0,
	}, nil
}

// Signal sends a signal to the command's process group.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return public(p.client.Signal(ctx, p.p.ID(), sig))
}

// Resize changes the size of the command's terminal.
func (p *Process) Resize(ctx context.Context, s Size) error {
	return public(p.client.Resize(ctx, p.p.ID(), wire.Size{Rows: s.Rows, Cols: s.Cols}))
}

// End ends the command and everything it started: SIGTERM, and SIGKILL two seconds later. It returns when it has ended; that it had ended before is no error.
func (p *Process) End(ctx context.Context) error {
	if err := public(p.client.End(ctx, p.p.ID())); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Close takes no more output. A command that Start has started is ended by it, unless it is of the background.
func (p *Process) Close() error { return p.p.Close() }
