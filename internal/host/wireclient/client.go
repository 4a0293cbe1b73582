// Package wireclient is the client of the wire: it sends requests to a sandbox's guest over a stream of its runtime.
package wireclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	helloTime = 20 * time.Second // bounds the first answer: an engine may need a second to provide the stream
	// A stream without answers to pings is dead: engines may forget to close it.
	pingAfter = 15 * time.Second
	pingTime  = 15 * time.Second
	poolTime  = time.Second // bounds the transport's registration of the stream for the next request
	// Receive buffers in bytes, for a slow stream.
	streamBuffer = 4 << 20
	connBuffer   = 16 << 20
	frameSize    = 1 << 20  // bytes of an HTTP/2 frame; fits a frame of output
	maxHeader    = 64 << 10 // bytes of a response's header and trailer
	maxError     = 500      // characters of a guest's error
)

var (
	// ErrConnectionLost means that the stream to the guest has ended. Commands in the sandbox may still run.
	ErrConnectionLost = errors.New("the connection to the sandbox was lost")
	// ErrNotSent means that the stream had ended before a request was sent, which can be repeated over another stream. It wraps
	// ErrConnectionLost.
	ErrNotSent = fmt.Errorf("%w before", ErrConnectionLost)
	// ErrLate means that a sandbox sent nothing for longer than a command's timeout: it is paused, or its machine hangs. It wraps
	// ErrConnectionLost.
	ErrLate = fmt.Errorf("%w: it did not answer in time", ErrConnectionLost)
	// ErrVersion means that the guest is of another version.
	ErrVersion = errors.New("the sandbox is of another version")
)

// Client is a client of one guest. Its methods may be called concurrently. Their errors are a *wire.Error of the guest, wrap
// ErrConnectionLost, or are the context's.
type Client struct {
	conn  net.Conn
	http  *http.Client
	over  chan struct{} // closed when the stream ends
	hello wire.Hello
}

// New connects to the guest over the stream, which the client closes, also after an error.
func New(ctx context.Context, stream io.ReadWriteCloser) (*Client, error) {
	conn, ok := stream.(net.Conn)
	if !ok {
		conn = streamConn{stream, noAddrConn{}}
	}
	over := make(chan struct{})
	conn = &notifyConn{Conn: conn, closed: sync.OnceFunc(func() { close(over) })}
	var taken atomic.Bool
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	c := &Client{conn: conn, over: over, http: &http.Client{
		Transport: &http.Transport{
			Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if !taken.Swap(true) {
					return conn, nil
				}
				// The only stream has ended, or the transport has not yet registered it for a second request.
				select {
				case <-over:
				case <-ctx.Done():
				case <-time.After(poolTime):
				}
				return nil, ErrNotSent
			},
			HTTP2: &http.HTTP2Config{
				SendPingTimeout: pingAfter, PingTimeout: pingTime, MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer,
				MaxReadFrameSize: frameSize,
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	// Close a stream that brings nothing, even if the transport waits.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err := c.get(ctx, wire.PathHello, nil, &c.hello)
	if err == nil && c.hello.Version != wire.Version {
		err = fmt.Errorf("%w: version %d, this program has %d", ErrVersion, c.hello.Version, wire.Version)
	}
	stop()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to the sandbox: %w", err)
	}
	return c, nil
}

type notifyConn struct {
	net.Conn
	closed func()
}

func (w *notifyConn) Close() error {
	w.closed()
	return w.Conn.Close()
}

// Hello returns the guest's description of itself.
func (c *Client) Hello() wire.Hello { return c.hello }

// Close closes the stream. That ends the commands of this client, except background commands.
func (c *Client) Close() error {
	c.http.CloseIdleConnections() // may close the stream
	if err := c.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// do sends a request. The caller closes the response's body.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	u := "http://guest" + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	var begun *readTracker
	if body != nil {
		begun = &readTracker{Reader: body}
		body = begun
	}
	r, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// The transport found the stream closed before it sent the body, on which a guest acts.
		if errors.Is(err, net.ErrClosed) && (begun == nil || !begun.read.Load()) {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrConnectionLost, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, errorOf(answer)
	}
	return answer, nil
}

// errorOf reads the error of a response. Its text is untrusted.
func errorOf(answer *http.Response) error {
	e := &wire.Error{}
	b, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConnectionLost, err)
	}
	if json.Unmarshal(b, e) != nil || !e.Code.Known() {
		e = &wire.Error{Code: wire.CodeFailed, Text: "the sandbox answers " + answer.Status}
	}
	return shown(e)
}

// shown returns an error of the guest that is safe to print.
func shown(e *wire.Error) error {
	code := e.Code
	if !code.Known() {
		code = wire.CodeFailed
	}
	return &wire.Error{Code: code, Text: plain(e.Text)}
}

// plain returns a text of the guest that is safe to print.
func plain(s string) string { return text.Runes(text.Clean(strings.TrimSpace(s)), maxError) }

func (c *Client) get(ctx context.Context, path string, query url.Values, document any) error {
	answer, err := c.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, wire.MaxDocument)
	if err := json.NewDecoder(body).Decode(document); err != nil {
		return fmt.Errorf("%w: read %s: %w", ErrConnectionLost, path, err)
	}
	_, _ = io.Copy(io.Discard, body) // closing a response early would cancel it
	return nil
}

func (c *Client) call(ctx context.Context, method, path string, document any) error {
	var body io.Reader
	if document != nil {
		b, err := json.Marshal(document)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	answer, err := c.do(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func of(path, id string) string { return strings.Replace(path, "{id}", url.PathEscape(id), 1) }

// Start starts a command. stdin is copied to it and may be nil; a pending read of stdin does not delay the command's end. The end of
// ctx or of the stream ends the command, unless it is a background command. The caller calls Follow or Close of the Process.
func (c *Client) Start(ctx context.Context, cmd wire.Command, stdin io.Reader) (*Process, error) {
	if err := cmd.Check(); err != nil {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	frame, err := wire.DocumentFrame(wire.FrameCommand, cmd)
	if err != nil {
		return nil, err
	}
	ctx, watch := watchSilence(ctx, cmd.TimeoutMS)
	p := &Process{c: c, watch: watch}
	answer, err := c.do(ctx, http.MethodPost, wire.PathExec, nil, body(frame, stdin))
	if err != nil {
		watch.close()
		return nil, fmt.Errorf("run %s in the sandbox: %w", cmd.Argv[0], err)
	}
	p.body, p.frames = answer.Body, wire.NewReader(answer.Body)
	f, err := p.frames.Next()
	watch.heard()
	var started wire.Started
	if err == nil && f.Type != wire.FrameStarted {
		err = wire.ErrFrame
	}
	if err == nil {
		err = f.Decode(&started)
	}
	if err == nil {
		if cerr := started.Check(); cerr != nil {
			err = fmt.Errorf("%w: %w", wire.ErrFrame, cerr)
		}
	}
	if err != nil {
		defer watch.close()
		_ = answer.Body.Close()
		return nil, fmt.Errorf("run %s in the sandbox: %w", cmd.Argv[0], lost(ctx, err))
	}
	p.id = started.ID
	return p, nil
}

// body returns a request's body: first, then a stream that may be nil. The transport can close it during a read of the stream, and
// does not read the stream of a body that was not sent.
func body(first []byte, then io.Reader) io.Reader {
	if then == nil {
		return bytes.NewReader(first)
	}
	r, w := io.Pipe()
	return &lazyPipe{PipeReader: r, start: sync.OnceFunc(func() {
		go func() {
			_, err := io.Copy(w, io.MultiReader(bytes.NewReader(first), then))
			w.CloseWithError(err) // nil means EOF
		}()
	})}
}

// readTracker records whether it was read.
type readTracker struct {
	io.Reader
	read atomic.Bool
}

func (t *readTracker) Read(p []byte) (int, error) {
	t.read.Store(true)
	return t.Reader.Read(p)
}

func (t *readTracker) Close() error {
	if c, ok := t.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// lazyPipe is a pipe that is filled at its first read.
type lazyPipe struct {
	*io.PipeReader
	start func()
}

func (p *lazyPipe) Read(b []byte) (int, error) {
	p.start()
	return p.PipeReader.Read(b)
}

// source is a reader that remembers its error.
type source struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}

// Attach returns a command's output from an offset in bytes. The end of ctx does not end the command.
func (c *Client) Attach(ctx context.Context, id string, from int64) (*Process, error) {
	answer, err := c.do(ctx, http.MethodGet, of(wire.PathExecOf, id), url.Values{wire.QueryFrom: {strconv.FormatInt(from, 10)}}, nil)
	if err != nil {
		return nil, fmt.Errorf("attach to command %s: %w", id, err)
	}
	return &Process{c: c, id: id, offset: from, body: answer.Body, frames: wire.NewReader(answer.Body)}, nil
}

// List returns the guest's commands, oldest first.
func (c *Client) List(ctx context.Context) ([]wire.CommandStatus, error) {
	return list[wire.CommandStatus](ctx, c, wire.PathExec)
}

// list reads a list and checks its entries.
func list[T interface{ Check() error }](ctx context.Context, c *Client, path string) (all []T, err error) {
	if err := c.get(ctx, path, nil, &all); err != nil {
		return nil, err
	}
	for _, e := range all {
		if err := e.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConnectionLost, err)
		}
	}
	return all, nil
}

// End ends a command and all processes that it started, and waits for their end.
func (c *Client) End(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, of(wire.PathExecOf, id), nil)
}

// Signal sends a signal to the command's process group.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	return c.call(ctx, http.MethodPost, of(wire.PathExecSignal, id), wire.Signal{Number: int(sig)})
}

// Resize changes the size of the command's terminal.
func (c *Client) Resize(ctx context.Context, id string, size wire.Size) error {
	return c.call(ctx, http.MethodPost, of(wire.PathExecResize, id), size)
}

// Input writes to the standard input of a background command, and closes the input if last is set.
func (c *Client) Input(ctx context.Context, id string, r io.Reader, last bool) error {
	query := url.Values{}
	if last {
		query.Set(wire.QueryClose, "1")
	}
	answer, err := c.do(ctx, http.MethodPost, of(wire.PathExecInput, id), query, body(nil, r))
	if err != nil {
		return fmt.Errorf("write to command %s: %w", id, err)
	}
	return answer.Body.Close()
}

// Ports returns the listening ports of the sandbox.
func (c *Client) Ports(ctx context.Context) (all []wire.Port, err error) {
	return all, c.get(ctx, wire.PathPorts, nil, &all)
}

// Stats returns the sandbox's resource use.
func (c *Client) Stats(ctx context.Context) (s wire.Stats, err error) {
	return s, c.get(ctx, wire.PathStats, nil, &s)
}

// SetNetwork replaces the network policy immediately.
func (c *Client) SetNetwork(ctx context.Context, n wire.NetworkPolicy) error {
	return c.call(ctx, http.MethodPut, wire.PathNetwork, n)
}

// SetKeys replaces values of keys of models immediately.
func (c *Client) SetKeys(ctx context.Context, values map[string]string) error {
	return c.call(ctx, http.MethodPut, wire.PathKeys, wire.Keys{Values: values})
}

// Alive sends the owner's keep-alive signal.
func (c *Client) Alive(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, wire.PathAlive, nil)
}

// Stop ends the sandbox. The stream may end before the answer.
func (c *Client) Stop(ctx context.Context) error {
	if err := c.call(ctx, http.MethodPost, wire.PathStop, nil); err != nil && !errors.Is(err, ErrConnectionLost) {
		return err
	}
	return nil
}

func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, wire.ErrFrame) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// streamConn makes a net.Conn from a stream.
type streamConn struct {
	io.ReadWriteCloser
	noAddrConn
}

// noAddrConn has the methods of a net.Conn without addresses and deadlines.
type noAddrConn struct{}

func (noAddrConn) Network() string { return "stream" }
func (noAddrConn) String() string  { return "guest" }

func (b noAddrConn) LocalAddr() net.Addr            { return b }
func (b noAddrConn) RemoteAddr() net.Addr           { return b }
func (noAddrConn) SetDeadline(time.Time) error      { return nil }
func (noAddrConn) SetReadDeadline(time.Time) error  { return nil }
func (noAddrConn) SetWriteDeadline(time.Time) error { return nil }
