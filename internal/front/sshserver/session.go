package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Exit codes of sessions in which no command ran.
const (
	exitGeneral  = 1
	exitNotFound = 2
)

// Bounds of what a session says of itself, in bytes.
const (
	maxTerm  = 64
	maxLang  = 64
	maxLangs = 16
)

// signals are those that a client can send, by the protocol's names.
var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL,
	"PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV, "TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1,
	"USR2": syscall.SIGUSR2,
}

// channel is an SSH session channel: one command, shell or subsystem.
type channel struct {
	c       *client
	ch      ssh.Channel
	in      *input
	env     []string
	term    string
	size    *Size // nil without a terminal
	resized chan Size
	signals chan syscall.Signal
}

// The requests of a session.
type (
	ptyRequest struct {
		Term          string
		Cols, Rows    uint32
		Width, Height uint32
		Modes         string
	}
	sizeRequest struct{ Cols, Rows, Width, Height uint32 }
	envRequest  struct{ Name, Value string }
	textRequest struct{ Text string }
)

// session serves a channel until its client closes it, or what it asked for has ended.
func (c *client) session(ctx context.Context, n ssh.NewChannel) {
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &channel{c: c, ch: ch, in: newInput(ctx, ch), resized: make(chan Size, 1), signals: make(chan syscall.Signal)}
	var running sync.WaitGroup
	defer func() {
		cancel() // the client has gone
		running.Wait()
		_ = ch.Close()
	}()
	begun := false
	for r := range requests {
		run := s.ask(ctx, r, begun)
		_ = r.Reply(run != nil, nil)
		if run == nil || !begins[r.Type] {
			continue
		}
		begun = true
		running.Go(func() {
			code := run()
			cancel()
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
			_ = ch.Close()
		})
	}
}

var begins = map[string]bool{"shell": true, "exec": true, "subsystem": true}

// ask takes a request; what is nil is refused, as are agents and displays of the client. What begins the session is to
// be run by the caller.
func (s *channel) ask(ctx context.Context, r *ssh.Request, begun bool) (run func() int) {
	done := func() int { return 0 }
	var t textRequest
	if begun && r.Type != "window-change" && r.Type != "signal" {
		return nil // what runs has what came before it, and nothing else begins here
	}
	switch r.Type {
	case "pty-req":
		var p ptyRequest
		if ssh.Unmarshal(r.Payload, &p) != nil {
			return nil
		}
		if len(p.Term) <= maxTerm && speakable(p.Term) {
			s.term = p.Term
		}
		s.size = sizeOf(p.Cols, p.Rows)
		return done
	case "window-change":
		var p sizeRequest
		if s.size == nil || ssh.Unmarshal(r.Payload, &p) != nil {
			return nil
		}
		select { // the last one counts
		case <-s.resized:
		default:
		}
		s.resized <- *sizeOf(p.Cols, p.Rows)
		return done
	case "env":
		var e envRequest
		if ssh.Unmarshal(r.Payload, &e) != nil || !s.take(e) {
			return nil
		}
		return done
	case "signal":
		if ssh.Unmarshal(r.Payload, &t) != nil || signals[t.Text] == 0 {
			return nil
		}
		select {
		case s.signals <- signals[t.Text]:
		case <-ctx.Done():
		case <-time.After(time.Second): // no receiver: there is no command yet, or it has ended
			return nil
		}
		return done
	case "shell":
		return func() int { return s.run(ctx, "") }
	case "exec":
		if ssh.Unmarshal(r.Payload, &t) != nil {
			return nil
		}
		return func() int { return s.run(ctx, t.Text) }
	case "subsystem":
		if ssh.Unmarshal(r.Payload, &t) != nil || t.Text != "sftp" {
			return nil
		}
		return func() int { return s.sftp(ctx) }
	}
	return nil
}

// sizeOf is the size of a terminal: one of nothing has the usual one.
func sizeOf(cols, rows uint32) *Size {
	const most = 4096
	const usualRows, usualCols = 24, 80
	if cols == 0 || rows == 0 {
		return &Size{Rows: usualRows, Cols: usualCols}
	}
	return &Size{Rows: uint16(min(rows, most)), Cols: uint16(min(cols, most))}
}

// take takes a variable of the client's: its language, and nothing that programs act upon.
func (s *channel) take(e envRequest) bool {
	if e.Name != "LANG" && !strings.HasPrefix(e.Name, "LC_") || len(e.Name) > maxLang || len(e.Value) > maxLang || len(s.env) >= maxLangs ||
		strings.Contains(e.Name+e.Value, "=") || !speakable(e.Name+e.Value) {
		return false
	}
	s.env = append(s.env, e.Name+"="+e.Value)
	return true
}

// speakable reports whether a sandbox takes a text: with a variable that it does not take, no command would run.
func speakable(t string) bool { return utf8.ValidString(t) && !strings.ContainsRune(t, 0) }

// run runs a shell, or a command, in the sandbox that is named; with none it tells which there are, or lets the client choose.
func (s *channel) run(ctx context.Context, line string) int {
	size := s.size
	sb, name, rest, err := s.c.named(ctx, line)
	switch {
	case errors.Is(err, ErrNotFound):
		return s.unknown(ctx, name)
	case err != nil:
		return s.fail(ctx, err)
	case sb != nil:
	case s.size == nil:
		return s.list(ctx, s.ch)
	default:
		if name, size, err = s.choose(ctx); err != nil {
			return s.fail(ctx, err)
		}
		if name == "" {
			return 0
		}
		if sb, err = s.c.open(ctx, name); err != nil {
			return s.fail(ctx, err)
		}
	}
	s.c.s.o.Log.Info("session", "sandbox", name, "terminal", s.size != nil)
	c := ExecRequest{
		Line: rest, Env: s.env, Stdin: s.in.reader(ctx), Stdout: s.ch, Stderr: s.ch.Stderr(), Terminal: size, Resized: s.resized,
		Signals: s.signals,
	}
	if s.size != nil {
		c.Stdin = s.in.keys(ctx)
	}
	if s.size != nil && s.term != "" {
		c.Env = append(c.Env, "TERM="+s.term)
	}
	code, err := sb.Run(ctx, c)
	if err != nil {
		return s.fail(ctx, err)
	}
	return code
}

func (s *channel) sftp(ctx context.Context) int {
	sb, name, err := s.c.own(ctx)
	if sb == nil && err == nil {
		return s.unknown(ctx, s.c.user)
	}
	if err != nil {
		return s.fail(ctx, err)
	}
	files, err := sb.Files(ctx)
	if err != nil {
		return s.fail(ctx, err)
	}
	defer files.Close()
	s.c.s.o.Log.Info("files", "sandbox", name)
	defer context.AfterFunc(ctx, func() { _ = files.Close() })()
	go send(files, s.in.reader(ctx)) // a client that has no more questions still has answers to come
	_, _ = io.Copy(s.ch, files)      // an end without an answer is what the client sees
	return 0
}

func (s *channel) fail(ctx context.Context, err error) int {
	if ctx.Err() != nil { // the client has gone
		return exitGeneral
	}
	s.c.s.o.Log.Warn("session failed", "error", err)
	s.say("error: " + shown(err) + "\n")
	return exitGeneral
}

func (s *channel) unknown(ctx context.Context, name string) int {
	s.say(fmt.Sprintf("error: there is no sandbox %q\n", text.Runes(text.Clean(name), maxTerm)))
	s.list(ctx, s.ch.Stderr())
	return exitNotFound
}

// say writes to the client's standard error, which is its terminal where it has one.
func (s *channel) say(line string) { s.write(s.ch.Stderr(), line) }

func (s *channel) write(w io.Writer, lines string) {
	if s.size != nil {
		w = terminal{w}
	}
	_, _ = io.WriteString(w, lines) // a client that has gone reads nothing
}

func (s *channel) list(ctx context.Context, w io.Writer) int {
	rows, err := s.c.s.o.Sandboxes.List(ctx)
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SANDBOX\tSTATE\tAGE\tWHAT")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", line(r.Name), line(r.State), text.Age(time.Since(r.Created)), line(r.What))
	}
	_ = t.Flush() // into memory
	s.write(w, b.String())
	if err != nil {
		s.say("warning: " + shown(err) + "\n")
	}
	return 0
}

// maxField bounds a field of the list, in characters.
const maxField = 40

// line is a text of others in a line of the list.
func line(t string) string { return text.Runes(strings.ReplaceAll(text.Clean(t), "\n", " "), maxField) }

// shown is an error for a client to read.
func shown(err error) string {
	const most = 500
	return text.Runes(text.Clean(err.Error()), most)
}

// input is what a client types, for one reader after the other: what the picker has not read when it ends is the command's.
type input struct {
	parts chan []byte
	over  chan struct{} // closed at its end
}

// newInput reads until ctx ends, or the client's input does.
func newInput(ctx context.Context, r io.Reader) *input {
	in := &input{make(chan []byte), make(chan struct{})}
	go func() {
		defer close(in.over)
		for {
			part := make([]byte, 32<<10)
			n, err := r.Read(part)
			if n > 0 {
				select {
				case in.parts <- part[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return in
}

// reader reads until ctx ends, with that error, or the input does.
func (in *input) reader(ctx context.Context) io.Reader {
	return &inputReader{done: ctx.Done(), parts: in.parts, over: in.over}
}

// keys reads as reader does, but has no end: that of a terminal's input is a key, and a client that has gone has pressed none.
func (in *input) keys(ctx context.Context) io.Reader {
	return &inputReader{done: ctx.Done(), parts: in.parts}
}

type inputReader struct {
	done, over <-chan struct{}
	parts      <-chan []byte
	rest       []byte
}

func (r *inputReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case r.rest = <-r.parts:
		case <-r.over:
			return 0, io.EOF
		case <-r.done:
			return 0, context.Canceled
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// terminal is a client's that has no line discipline: a line feed alone would only go down.
type terminal struct{ w io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	if _, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
