package wireclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Process is a command's output as it comes.
type Process struct {
	c      *Client
	id     string
	offset int64
	body   io.ReadCloser
	frames *wire.Reader
	watch  *silence
}

// patience is how long beyond a timeout a guest may say nothing: to end a command takes it two seconds.
const patience = 5 * time.Second

// silence ends a request whose guest says nothing for longer than a timeout allows. A nil one never does.
type silence struct {
	ctx   context.Context // of the request; its cause says why it ended
	limit time.Duration
	timer *time.Timer
	end   context.CancelFunc
}

// watchSilence returns the context of a request with a timeout, which 0 has not.
func watchSilence(ctx context.Context, timeoutMS int64) (context.Context, *silence) {
	if timeoutMS <= 0 {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &silence{ctx: ctx, limit: time.Duration(timeoutMS)*time.Millisecond + patience, end: func() { cancel(nil) }}
	s.timer = time.AfterFunc(s.limit, func() { cancel(ErrLate) })
	return ctx, s
}

// wait begins a wait for the guest, and heard ends it: the time that the caller takes for the output is not the guest's.
func (s *silence) wait() {
	if s != nil {
		s.timer.Reset(s.limit)
	}
}

func (s *silence) heard() {
	if s != nil {
		s.timer.Stop()
	}
}

// over reports whether the guest was silent for too long.
func (s *silence) over() bool { return s != nil && errors.Is(context.Cause(s.ctx), ErrLate) }

func (s *silence) close() {
	if s != nil {
		s.timer.Stop()
		s.end()
	}
}

// ID names the command for Attach, Signal, Resize, Input and End.
func (p *Process) ID() string { return p.id }

// Offset is how much of the output Follow has passed on or counted as lost, in bytes: where Attach goes on.
func (p *Process) Offset() int64 { return p.offset }

// Close takes no more output. A command that this process has started is ended by it, unless it is of the background.
func (p *Process) Close() error {
	p.watch.close()
	if p.body == nil { // it never began
		return nil
	}
	return p.body.Close()
}

// Follow passes output on until the command ends. A writer that is nil drops its stream. left receives the number of bytes that the guest
// did not keep, and may be nil. It is called once.
func (p *Process) Follow(ctx context.Context, stdout, stderr io.Writer, left func(bytes int64)) (wire.Exit, error) {
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.body.Close() })
	defer stop()
	for {
		p.watch.wait()
		f, err := p.frames.Next()
		p.watch.heard()
		if err != nil {
			if p.watch.over() {
				return wire.Exit{}, fmt.Errorf("follow command %s: %w", p.id, ErrLate)
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the exit comes last
			}
			return wire.Exit{}, fmt.Errorf("follow command %s: %w", p.id, lost(ctx, err))
		}
		switch f.Type {
		case wire.FrameStdout, wire.FrameStderr:
			p.offset += int64(len(f.Payload))
			w := stdout
			if f.Type == wire.FrameStderr {
				w = stderr
			}
			if w == nil {
				continue
			}
			if _, err := w.Write(f.Payload); err != nil {
				return wire.Exit{}, fmt.Errorf("pass on the output of command %s: %w", p.id, err)
			}
		case wire.FrameLost:
			n, err := f.Lost()
			if err != nil {
				return wire.Exit{}, fmt.Errorf("follow command %s: %w", p.id, err)
			}
			p.offset += n
			if left != nil {
				left(n)
			}
		case wire.FrameExit:
			exit, err := exitOf(f)
			if err != nil {
				return wire.Exit{}, fmt.Errorf("follow command %s: %w", p.id, err)
			}
			return exit, nil
		}
	}
}

func exitOf(f wire.Frame) (exit wire.Exit, err error) {
	if err := f.Decode(&exit); err != nil {
		return exit, err
	}
	if err := exit.Check(); err != nil {
		return exit, fmt.Errorf("%w: %w", wire.ErrFrame, err)
	}
	exit.Error = plain(exit.Error)
	return exit, nil
}

// Dial connects to a port (tcp, host:port) or socket (unix, path) in the sandbox. ctx bounds the attempt and not the connection, which has
// no deadlines and can be closed for writing alone.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.tunnel(ctx, wire.PathDial, url.Values{wire.QueryNetwork: {network}, wire.QueryAddress: {address}})
	if err != nil {
		return nil, fmt.Errorf("connect to %s in the sandbox: %w", address, err)
	}
	return conn, nil
}

// Proxied waits for a connection that a command makes to the sandbox's proxy. It has no deadlines and can be closed for writing alone.
func (c *Client) Proxied(ctx context.Context) (net.Conn, error) {
	return c.tunnel(ctx, wire.PathProxied, nil)
}

// SFTP is a connection to a server of SFTP in the sandbox, whose relative paths are below the one of the query. ctx
// bounds the attempt, not the connection.
func (f Files) SFTP(ctx context.Context, q FileQuery) (net.Conn, error) {
	conn, err := f.c.tunnel(ctx, wire.PathFilesSFTP, q.values())
	if err != nil {
		return nil, fmt.Errorf("begin SFTP in the sandbox: %w", err)
	}
	return conn, nil
}

func (c *Client) tunnel(ctx context.Context, path string, query url.Values) (net.Conn, error) {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the connection outlives ctx
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	r, w := io.Pipe()
	answer, err := c.do(open, http.MethodPost, path, query, r)
	if err != nil {
		cancel()
		return nil, err
	}
	return &tunnel{in: w, out: answer.Body, cancel: cancel}, nil
}

// tunnel is a connection into the sandbox.
type tunnel struct {
	noAddrConn
	in     *io.PipeWriter
	out    io.ReadCloser
	cancel context.CancelFunc
}

func (t *tunnel) Read(p []byte) (int, error)  { return t.out.Read(p) }
func (t *tunnel) Write(p []byte) (int, error) { return t.in.Write(p) }

// CloseWrite ends what is sent, and not what comes.
func (t *tunnel) CloseWrite() error { return t.in.Close() }

func (t *tunnel) Close() error {
	defer t.cancel()
	return errors.Join(t.in.Close(), t.out.Close())
}
