package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// DefaultMaxOutput is the default limit of each stream of a Result, in bytes.
const DefaultMaxOutput = 1 << 20

// Shells are the shells that can be given a script.
var Shells = []string{"sh", "bash", "zsh", "ash"}

// Command is a program to run in a sandbox.
type Command struct {
	// Argv is the program and its arguments. No shell interprets it.
	Argv []string
	Dir  string   // the working directory, absolute or relative to the sandbox's; "" means the sandbox's
	Env  []string // has NAME=value entries, added to the sandbox's environment
	// Stdin is copied to the command; nil means empty input. A read of Stdin that is pending when the command ends is not waited for.
	Stdin io.Reader
	// Timeout ends the command and every process it started, including detached ones; 0 means no timeout. The sandbox
	// measures it. If the sandbox does not answer within some seconds after it, Wait returns without it.
	Timeout time.Duration
	// MaxOutput limits each stream of a Result, in bytes: the first three quarters are the beginning of the output, the
	// rest is its end. 0 means DefaultMaxOutput, NoLimit everything.
	MaxOutput int
	// Background keeps the command running after its client disconnects: see Start and Attach.
	Background bool
	// Terminal, if non-nil, gives the command a terminal of this size instead of pipes.
	Terminal *Size
	// Masked replaces the values of the sandbox's secrets in the output, also encoded in base64 and hexadecimal. It has no
	// effect with a Terminal.
	Masked bool
	// Unrecorded omits the command from the sandbox's history. It is for commands that no user requested.
	Unrecorded bool
}

// Size is a terminal's size in characters.
type Size struct{ Rows, Cols uint16 }

// ExitStatus is how a command or a cell of a session ended.
type ExitStatus struct {
	// ExitCode is a shell's: 128+n after signal n, 127 program not found, 126 not executable. Of a cell it is 0, 1 after an
	// exception, or the code's exit code; for bash that of the last command.
	ExitCode int            `json:"exit_code"`
	Signal   syscall.Signal `json:"signal,omitempty"` // the signal that ended the command; 0 if none did
	TimedOut bool           `json:"timed_out"`
	// OutOfMemory reports that the kernel killed the command, or a process it started, at the sandbox's memory limit.
	OutOfMemory bool `json:"out_of_memory"`
	Truncated   bool `json:"truncated"` // the output exceeded MaxOutput
	// Reason is why the command did not start, or why its end is unknown; otherwise "".
	Reason string `json:"error,omitempty"`
}

// RunResult is the outcome of a command.
type RunResult struct {
	ExitStatus
	Stdout   []byte // set by Run; with a Terminal all output
	Stderr   []byte
	Duration time.Duration
	ID       string // the command's id, for Attach
}

// Check validates the command. Its error is an ErrInvalidSpec with all mistakes.
func (c Command) Check() error {
	if err := c.wire().Check(); err != nil {
		return fmt.Errorf("command: %w: %w", ErrInvalidSpec, err)
	}
	return nil
}

func (c Command) wire() wire.Command {
	w := wire.Command{Argv: c.Argv, Dir: c.Dir, Env: c.Env, TimeoutMS: timeout(c.Timeout), Background: c.Background}
	if c.Terminal != nil {
		w.Terminal = &wire.Size{Rows: c.Terminal.Rows, Cols: c.Terminal.Cols}
	}
	return w
}

func (in *instance) run(ctx context.Context, c Command) (RunResult, error) {
	p, err := in.start(ctx, c)
	if err != nil {
		return RunResult{}, err
	}
	limit := cmp.Or(c.MaxOutput, DefaultMaxOutput)
	out, errOut := text.NewHeadTail(limit), text.NewHeadTail(limit)
	r, err := p.Wait(ctx, out, errOut)
	if err != nil {
		return RunResult{}, err
	}
	r.Stdout, r.Stderr, r.Truncated = out.Bytes(), errOut.Bytes(), out.Cut() || errOut.Cut()
	return r, nil
}

func (in *instance) start(ctx context.Context, c Command) (*Process, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var p *Process
	begun := time.Now()
	err := in.use(ctx, func(client *wireclient.Client) error {
		what := c.wire()
		if s := in.current(); s.Box != nil && len(s.Box.SecretNames) > 0 { // others have none, and may be of an older program
			what.Masked = c.Masked
		}
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
		in.note(sandboxstore.Event{Event: sandboxstore.EventExecuted, Program: c.Argv[0], Background: true})
	default:
		p.in, p.program = in, c.Argv[0]
	}
	return p, nil
}

// timeout returns d in milliseconds, at least 1 if d is positive.
func timeout(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// Commands lists running commands and the latest ended background commands, oldest first.
func (sb *Sandbox) Commands(ctx context.Context) ([]CommandInfo, error) {
	list, err := query(ctx, sb.in, func(c *wireclient.Client) ([]wire.CommandStatus, error) { return c.List(ctx) })
	if err != nil {
		return nil, err
	}
	return commandInfos(list), nil
}

func commandInfos(list []wire.CommandStatus) []CommandInfo {
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

const (
	// commandGrace is the time of commands to end after SIGTERM. Shells at a terminal ignore the signal: a stop with one takes this long.
	commandGrace = 5 * time.Second
	commandLook  = 20 * time.Millisecond
)

// endCommands sends SIGTERM to the commands and waits for their end. An error means that the sandbox does not run or does not answer.
func endCommands(ctx context.Context, in *instance) error {
	ctx, cancel := context.WithTimeout(ctx, commandGrace)
	defer cancel()
	sent := map[string]bool{}
	return in.useAsItIs(ctx, func(c *wireclient.Client) error {
		for {
			all, err := c.List(ctx)
			all = slices.DeleteFunc(all, func(s wire.CommandStatus) bool { return s.Exit != nil })
			if err != nil || len(all) == 0 {
				return err
			}
			for _, s := range all {
				if !sent[s.ID] {
					sent[s.ID] = true
					_ = c.Signal(ctx, s.ID, syscall.SIGTERM) // it may have ended
				}
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(commandLook):
			}
		}
	})
}

// CommandInfo describes a command in the list of Commands.
type CommandInfo struct {
	ID         string    `json:"id"`
	Argv       []string  `json:"argv"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background"`
	Running    bool      `json:"running"`
	ExitCode   int       `json:"exit_code"` // once it has ended
	Output     int64     `json:"output"`    // bytes so far
}

// lateReason and lateCode are for a command whose sandbox is paused or does not answer. The code is that of GNU timeout.
const (
	lateReason = "the sandbox did not answer within the command's timeout: the command may still run"
	lateCode   = 124
)

// Process is a command that was started or attached to.
type Process struct {
	client  *wireclient.Client
	p       *wireclient.Process
	late    bool      // the sandbox did not answer within the command's timeout
	in      *instance // records the end; nil if another process does
	program string
	began   time.Time
	lost    func(bytes int64)
}

// OnLost sets a function that Wait calls, before it writes further output, with the number of bytes that the sandbox
// dropped. Call it before Wait.
func (p *Process) OnLost(report func(bytes int64)) { p.lost = report }

// ID returns the command's id for Attach. It is valid until the sandbox stops.
func (p *Process) ID() string { return p.p.ID() }

// Wait copies output to the writers until the command ends; a nil writer discards its stream. The end of ctx, or a
// failing writer, ends a command that Start started, unless Background is set. Call Wait once.
func (p *Process) Wait(ctx context.Context, stdout, stderr io.Writer) (RunResult, error) {
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
		return RunResult{
			ID:         p.ID(),
			Duration:   time.Since(p.began),
			ExitStatus: ExitStatus{ExitCode: lateCode, TimedOut: true, Truncated: lost > 0, Reason: lateReason},
		}, nil
	}
	if err != nil {
		return RunResult{}, public(err)
	}
	if p.in != nil {
		p.in.note(sandboxstore.Event{Event: sandboxstore.EventExecuted, Program: p.program, Code: &exit.Code, Millis: exit.DurationMS})
	}
	return RunResult{
		ID: p.ID(), Duration: time.Duration(exit.DurationMS) * time.Millisecond, ExitStatus: ExitStatus{
			ExitCode: exit.Code, Signal: syscall.Signal(exit.Signal), TimedOut: exit.TimedOut, OutOfMemory: exit.OutOfMemory,
			Truncated: lost > 0, Reason: exit.Error,
		},
	}, nil
}

// Signal sends a signal to the command's process group.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return public(p.client.Signal(ctx, p.p.ID(), sig))
}

// Resize sets the size of the command's terminal.
func (p *Process) Resize(ctx context.Context, s Size) error {
	return public(p.client.Resize(ctx, p.p.ID(), wire.Size{Rows: s.Rows, Cols: s.Cols}))
}

// End ends the command and every process it started: SIGTERM, then SIGKILL after two seconds. It returns when they have
// ended, with nil if they had ended before.
func (p *Process) End(ctx context.Context) error {
	if err := public(p.client.End(ctx, p.p.ID())); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Close detaches from the command. It ends a command that Start started, unless Background is set.
func (p *Process) Close() error { return p.p.Close() }
