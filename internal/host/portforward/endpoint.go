package portforward

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// Endpoint is a listener on this machine's loopback that joins each connection to one made by dial.
type Endpoint struct {
	dial func(context.Context) (net.Conn, error)
	l    net.Listener
	end  context.CancelFunc // ends dial
	wg   sync.WaitGroup
	mu   sync.Mutex
	on   map[net.Conn]bool
}

// Listen listens on a port of 127.0.0.1, or on a free one if port is 0. A connection ends if its dial fails. ctx bounds
// only this call; Close ends the endpoint.
func Listen(ctx context.Context, port int, dial func(context.Context) (net.Conn, error)) (*Endpoint, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	e := &Endpoint{dial: dial, l: l, on: map[net.Conn]bool{}}
	ctx, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.wg.Go(func() { e.serve(ctx) })
	return e, nil
}

// Addr returns 127.0.0.1:port.
func (e *Endpoint) Addr() string { return e.l.Addr().String() }

// Port returns the port of Addr.
func (e *Endpoint) Port() int {
	if a, ok := e.l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// acceptPause keeps a listener without file descriptors from spinning.
const acceptPause = 10 * time.Millisecond

func (e *Endpoint) serve(ctx context.Context) {
	for {
		conn, err := e.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		if !e.keep(conn) {
			return
		}
		e.wg.Go(func() {
			defer e.drop(conn)
			e.join(ctx, conn)
		})
	}
}

func (e *Endpoint) join(ctx context.Context, conn net.Conn) {
	inside, err := e.dial(ctx)
	if err != nil {
		return // the caller's connection ends
	}
	if !e.keep(inside) {
		return
	}
	defer e.drop(inside)
	var both sync.WaitGroup
	both.Go(func() { pass(inside, conn) })
	both.Go(func() { pass(conn, inside) })
	both.Wait()
}

// pass copies one direction and then closes it for writing.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close() // the other way ends too
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// keep registers a connection for Close, or closes it after Close.
func (e *Endpoint) keep(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.on == nil {
		_ = c.Close()
		return false
	}
	e.on[c] = true
	return true
}

func (e *Endpoint) drop(c net.Conn) {
	_ = c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.on, c)
}

// Close ends the endpoint and its connections.
func (e *Endpoint) Close() error {
	e.end()
	err := e.l.Close()
	e.mu.Lock()
	for c := range e.on {
		_ = c.Close()
	}
	e.on = nil
	e.mu.Unlock()
	e.wg.Wait()
	return err
}
