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

// Nested is a lease of a sandbox: what talks to the guest in it.
type Nested struct {
	*Client
	stream *leaseStream
}

// ErrNoNested means that a lease could not begin: the sandbox lacks what it needs for one.
var ErrNoNested = errors.New("the sandbox can make no lease")

// NewNested makes a lease and says hello to its guest. ctx bounds that and not the lease, which ends with End, or with this
// client's connection.
func (c *Client) NewNested(ctx context.Context) (*Nested, error) {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the lease outlives ctx
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
	s := &leaseStream{tunnel: tunnel{in: w, out: answer.Body, cancel: cancel}, answer: answer, over: make(chan struct{})}
	inner, err := New(ctx, s)
	if err != nil {
		if why := s.end(ctx); why != nil && !errors.Is(why, ErrConnectionLost) && ctx.Err() == nil { // the guest says why
			err = fmt.Errorf("%w: %w", ErrNoNested, why)
		}
		return nil, errors.Join(fmt.Errorf("make a lease: %w", err), s.Close())
	}
	s.begun.Store(true)
	return &Nested{inner, s}, nil
}

// End ends the lease with all that runs in it. After an error something of it may be left, and the sandbox is not clean.
func (n *Nested) End(ctx context.Context) error {
	err := n.stream.end(ctx)
	return errors.Join(err, n.Close())
}

// leaseStream leads to the guest of a lease.
type leaseStream struct {
	tunnel
	answer *http.Response
	begun  atomic.Bool
	ending atomic.Bool
	once   sync.Once
	over   chan struct{} // closed once nothing more comes
	err    error         // why, once it is closed
}

func (s *leaseStream) Read(p []byte) (int, error) {
	n, err := s.tunnel.Read(p)
	if err != nil {
		s.once.Do(func() {
			s.err = err
			close(s.over)
		})
	}
	return n, err
}

// lastWord bounds the wait for what a guest says of a lease that did not begin.
const lastWord = time.Second

// Close ends the stream. Of a lease that did not begin it waits for the guest's last word, and one that is ending reads
// on to it: the transport over it may close it earlier.
func (s *leaseStream) Close() error {
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

// end ends the request, waits for the guest's word that nothing of the lease is left, and closes the stream.
func (s *leaseStream) end(ctx context.Context) error {
	s.ending.Store(true)
	defer s.tunnel.Close()
	_ = s.CloseWrite() // an error is that of an end that came before
	select {
	case <-s.over:
	case <-ctx.Done():
		return fmt.Errorf("end the lease: %w", context.Cause(ctx))
	}
	if !errors.Is(s.err, io.EOF) {
		return fmt.Errorf("end the lease: %w: %w", ErrConnectionLost, s.err)
	}
	if why := s.answer.Trailer.Get(wire.TrailerError); why != "" {
		if text, err := url.QueryUnescape(why); err == nil {
			why = text
		}
		return fmt.Errorf("end the lease: %s", plain(why))
	}
	return nil
}
