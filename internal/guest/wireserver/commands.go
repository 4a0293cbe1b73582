package wireserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// stopGrace is the time between SIGTERM and SIGKILL of a command that exceeds its time limit.
	stopGrace = 2 * time.Second
	// leftGrace is the time after SIGHUP for a command whose client has disconnected.
	leftGrace = 10 * time.Second
	// settleTime bounds the wait at a command's end for output of its other processes.
	settleTime = 200 * time.Millisecond
	// endTime bounds the wait for the end of all commands: killed processes are gone within milliseconds.
	endTime     = 5 * time.Second
	maxCommands = 512
	// maxEnded bounds how many ended background commands stay known; the oldest is forgotten first.
	maxEnded = 16
)

type commands struct {
	config   Config
	mu       sync.Mutex
	all      map[string]*command // started commands by id
	ended    []string            // ended background commands, oldest first
	starting int
	over     bool // no new command may start
}

type command struct {
	id      string
	what    wire.Command
	started time.Time
	run     *supervise.Process
	out     *spool
	tty     *os.File      // the guest's side of its terminal; nil if none
	masks   []*lockedMask // hold back what may be the beginning of a secret

	input   sync.Mutex
	stdin   *os.File      // nil once closed
	begun   chan struct{} // closed once the input that came with the command has been written
	done    chan struct{}
	exit    wire.Exit // valid once done is closed
	timeout bool
	kills   int // OOM kills before it began
	mu      sync.Mutex
}

func newCommands(c Config) *commands { return &commands{config: c, all: map[string]*command{}} }

func (cs *commands) start(ctx context.Context, what wire.Command) (*command, error) {
	if err := what.Check(); err != nil {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	c := &command{
		id: rand.Text(), what: what, started: time.Now(), out: newSpool(!what.Background), begun: make(chan struct{}), done: make(chan struct{}),
		kills: cs.config.OOMKills(),
	}
	if err := cs.reserve(); err != nil {
		return nil, err
	}
	copiers, err := cs.launch(ctx, c)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.starting--
	if err != nil {
		return nil, err
	}
	cs.all[c.id] = c
	if cs.over {
		c.end()
	}
	go cs.follow(c, copiers)
	return c, nil
}

// reserve takes a slot for a new command.
func (cs *commands) reserve() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	running := len(cs.all) - len(cs.ended) + cs.starting
	switch {
	case cs.over:
		return &wire.Error{Code: wire.CodeFailed, Text: "the sandbox ends"}
	case running >= maxCommands:
		return &wire.Error{Code: wire.CodeExhausted, Text: fmt.Sprintf("the sandbox already runs %d commands", running)}
	}
	cs.starting++
	return nil
}

// launch starts the command with its input and output.
func (cs *commands) launch(ctx context.Context, c *command) ([]*proc.PipeCopier, error) {
	dir := c.what.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(cs.config.Dir, dir)
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, &wire.Error{Code: wire.CodeNotFound, Text: fmt.Sprintf("directory %s does not exist in the sandbox", dir)}
	}
	spec := supervise.Spec{
		Argv: c.what.Argv, Dir: dir, Env: environment(append(slices.Clone(cs.config.Env), "PWD="+dir), c.what), User: cs.config.User,
		Terminal: c.what.Terminal != nil, DataBytes: cs.config.DataBytes,
	}
	std, err := openFiles(c.what.Terminal, cs.config.User)
	if err != nil {
		return nil, wirehttp.Failed("prepare the command's input and output", err)
	}
	c.run, err = supervise.Start(ctx, cs.config.Self, cs.config.Reap, spec, std.in, std.out, std.err)
	if errors.Is(err, syscall.EAGAIN) && cs.config.OrphanGuard.Exhausted() {
		cs.config.OrphanGuard.KillOrphans()
		c.run, err = supervise.Start(ctx, cs.config.Self, cs.config.Reap, spec, std.in, std.out, std.err)
	}
	std.closeTheirs()
	if err != nil {
		std.closeOurs()
		if errors.Is(err, syscall.EAGAIN) || cs.config.OrphanGuard.Crowded() { // a supervisor that can start no thread crashes
			return nil, &wire.Error{Code: wire.CodeExhausted, Text: supervise.ProcessLimit}
		}
		return nil, wirehttp.Failed("start the command", err)
	}
	c.stdin, c.tty = std.ourIn, std.tty
	copiers := []*proc.PipeCopier{proc.NewPipeCopier(std.ourOut, c.writer(cs.config.Mask, wire.FrameStdout))}
	if std.ourErr != nil {
		copiers = append(copiers, proc.NewPipeCopier(std.ourErr, c.writer(cs.config.Mask, wire.FrameStderr)))
	}
	if c.what.TimeoutMS > 0 {
		timer := time.AfterFunc(time.Duration(c.what.TimeoutMS)*time.Millisecond, func() {
			c.mu.Lock()
			c.timeout = true
			c.mu.Unlock()
			c.run.End(syscall.SIGTERM, stopGrace)
		})
		go func() { <-c.done; timer.Stop() }()
	}
	return copiers, nil
}

// writer returns the stream that the output goes to.
func (c *command) writer(mask func(io.Writer) io.WriteCloser, stream wire.FrameType) io.Writer {
	w := c.out.writer(stream)
	if mask == nil || !c.what.Masked || c.what.Terminal != nil {
		return w
	}
	m := &lockedMask{w: mask(w)}
	c.masks = append(c.masks, m)
	return m
}

// lockedMask is a mask that is closed while background processes of the command may still write.
type lockedMask struct {
	mu sync.Mutex
	w  io.WriteCloser
}

func (m *lockedMask) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Write(p)
}

// close writes what the mask holds back.
func (m *lockedMask) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.w.Close() // the spool takes everything
}

func (cs *commands) follow(c *command, copiers []*proc.PipeCopier) {
	exit, err := c.run.Wait()
	c.mu.Lock()
	timedOut, took := c.timeout, time.Since(c.started) // measured here, because a client may be slow to take the output
	c.mu.Unlock()
	if err != nil {
		// Its supervisor was killed by a process with the right to, or could not start a thread.
		exit = supervise.Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL), Error: err.Error()}
		if cs.config.OrphanGuard.Crowded() {
			exit.Error = supervise.ProcessLimit
		}
	}
	until := time.Now().Add(settleTime)
	for _, f := range copiers {
		f.Drain(time.Until(until)) // background processes may continue to write
	}
	for _, m := range c.masks {
		m.close()
	}
	c.closeInput()
	c.mu.Lock()
	c.exit = wire.Exit{
		Code: exit.Code, Signal: exit.Signal, Error: exit.Error, TimedOut: timedOut, DurationMS: took.Milliseconds(),
		OutOfMemory: exit.Code == 128+int(syscall.SIGKILL) && !timedOut && cs.config.OOMKills() > c.kills,
	}
	c.mu.Unlock()
	c.out.close()
	close(c.done)
	if c.what.Background {
		cs.keep(c)
	} else {
		cs.forget(c)
	}
}

// keep lets clients query an ended command, up to a limit.
func (cs *commands) keep(c *command) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.ended = append(cs.ended, c.id)
	if len(cs.ended) > maxEnded {
		cs.all[cs.ended[0]].out.drop()
		delete(cs.all, cs.ended[0])
		cs.ended = cs.ended[1:]
	}
}

func (cs *commands) forget(c *command) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.all, c.id)
}

// get returns the command with an id or a unique prefix of one.
func (cs *commands) get(id string) (*command, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[id]; c != nil {
		return c, nil
	}
	var found *command
	for _, c := range cs.all {
		if id == "" || !strings.HasPrefix(c.id, id) {
			continue
		}
		if found != nil {
			return nil, &wire.Error{Code: wire.CodeNotFound, Text: fmt.Sprintf("more than one command has an id that starts with %q", id)}
		}
		found = c
	}
	if found == nil {
		return nil, &wire.Error{Code: wire.CodeNotFound, Text: fmt.Sprintf("no command %q in the sandbox", id)}
	}
	return found, nil
}

// list returns all commands, oldest first.
func (cs *commands) list() []wire.CommandStatus {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := make([]wire.CommandStatus, 0, len(cs.all))
	for _, c := range cs.all {
		e := wire.CommandStatus{ID: c.id, Argv: c.what.Argv, Started: c.started, Background: c.what.Background, Output: c.out.len()}
		select {
		case <-c.done:
			e.Exit = &c.exit
		default:
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b wire.CommandStatus) int { return a.Started.Compare(b.Started) })
	return all
}

// endAll ends every command, and returns when they have ended or cannot be ended. No new command can start.
func (cs *commands) endAll() {
	cs.mu.Lock()
	cs.over = true
	all := slices.Collect(maps.Values(cs.all))
	cs.mu.Unlock()
	over := time.After(endTime)
	for _, c := range all {
		c.end()
	}
	for _, c := range all {
		select {
		case <-c.done:
		case <-over:
			return
		}
	}
}

func (cs *commands) running() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.all) - len(cs.ended) + cs.starting
}

// end ends the command at once, with the sandbox.
func (c *command) end() {
	c.out.drop() // must not block on a client
	c.run.End(0, 0)
}

// write passes input on until its end, or until the command accepts no more.
func (c *command) write(r io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			c.input.Lock()
			stdin := c.stdin
			c.input.Unlock()
			if stdin == nil {
				return io.ErrClosedPipe
			}
			if _, werr := stdin.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *command) closeInput() {
	c.input.Lock()
	defer c.input.Unlock()
	if c.stdin == nil {
		return
	}
	if c.tty != nil {
		select {
		case <-c.done:
		default:
			_, _ = c.tty.Write([]byte{4}) // a terminal's end of input, ^D
			return
		}
	} else {
		_ = c.stdin.Close()
	}
	c.stdin = nil
}

func (c *command) resize(s wire.Size) error {
	if c.tty == nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the command has no terminal"}
	}
	if err := setSize(c.tty, s); err != nil {
		return wirehttp.Failed("change the terminal's size", err)
	}
	return nil
}

// environment returns a command's environment: the guest's, overridden by the command's own.
func environment(base []string, c wire.Command) []string {
	all := slices.Clone(base)
	if c.Terminal != nil {
		all = append(all, "TERM=xterm-256color")
	}
	all = append(all, c.Env...)
	last := map[string]int{}
	for i, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	env := make([]string, 0, len(last))
	for i, kv := range all {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i {
			env = append(env, kv)
		}
	}
	return env
}
