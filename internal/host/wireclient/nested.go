package wireclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Nested is a client of the guest of a nested sandbox.
type Nested struct {
	*Client
	stream *nestedStream
}

// ErrNoNested means that the sandbox lacks a requirement of nested sandboxes.
var ErrNoNested = errors.New("nested sandboxes are unavailable")

// NewNested creates a nested sandbox and connects to its guest. ctx bounds only these steps. The nested sandbox ends with End
// or with this client's connection.
func (c *Client) NewNested(ctx context.Context) (*Nested, error) {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the nested sandbox outlives ctx
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	r, w := io.Pipe()
	answer, err := c.do(open, http.MethodPost, wire.PathNested, nil, r)
	if err != nil {
		cancel()
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeFailed {
			err = fmt.Errorf("%w: %w", ErrNoNested, err)
		}
		return nil, err
	}
	s := &nestedStream{tunnel: tunnel{in: w, out: answer.Body, cancel: cancel}, answer: answer, over: make(chan struct{})}
	inner, err := New(ctx, s)
	if err != nil {
		if why := s.end(ctx); why != nil && !errors.Is(why, ErrConnectionLost) && ctx.Err() == nil { // the guest's reason
			err = fmt.Errorf("%w: %w", ErrNoNested, why)
		}
		return nil, errors.Join(fmt.Errorf("create a nested sandbox: %w", err), s.Close())
	}
	s.begun.Store(true)
	return &Nested{inner, s}, nil
}

// End ends the nested sandbox and its processes. After an error some of its files or processes may remain in the sandbox.
func (n *Nested) End(ctx context.Context) error {
	err := n.stream.end(ctx)
	return errors.Join(err, n.Close())
}

// nestedStream connects to the guest of a nested sandbox.
type nestedStream struct {
	tunnel
	answer *http.Response
	begun  atomic.Bool
	ending atomic.Bool
	once   sync.Once
	over   chan struct{} // closed at the end of the stream
	err    error         // the reason, after over is closed
}

func (s *nestedStream) Read(p []byte) (int, error) {
	n, err := s.tunnel.Read(p)
	if err != nil {
		s.once.Do(func() {
			s.err = err
			close(s.over)
		})
	}
	return n, err
}

const lastWord = time.Second // for the error of a nested sandbox that did not start

// Close closes the stream. If the nested sandbox did not start, it first waits for the guest's error. After End it reads the stream to
// its end in the background: the transport may close the stream before the guest's answer.
func (s *nestedStream) Close() error {
	if !s.begun.Swap(true) {
		_ = s.CloseWrite()
		late := time.AfterFunc(lastWord, func() { _ = s.tunnel.Close() })
		_, _ = io.Copy(io.Discard, s)
		late.Stop()
	}
	if s.ending.Load() {
		go func() { _, _ = io.Copy(io.Discard, s) }()
		return nil
	}
	return s.tunnel.Close()
}

// end ends the request, waits for the end of the nested sandbox, and closes the stream.
func (s *nestedStream) end(ctx context.Context) error {
	s.ending.Store(true)
	defer s.tunnel.Close()
	_ = s.CloseWrite() // fails if it has ended before
	select {
	case <-s.over:
	case <-ctx.Done():
		return fmt.Errorf("end the nested sandbox: %w", context.Cause(ctx))
	}
	if !errors.Is(s.err, io.EOF) {
		return fmt.Errorf("end the nested sandbox: %w: %w", ErrConnectionLost, s.err)
	}
	if why := s.answer.Trailer.Get(wire.TrailerError); why != "" {
		if text, err := url.QueryUnescape(why); err == nil {
			why = text
		}
		return fmt.Errorf("end the nested sandbox: %s", plain(why))
	}
	return nil
}
