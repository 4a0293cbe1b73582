package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Port is what listens in a sandbox.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"` // in the sandbox
}

// Ports is what listens in the sandbox.
func (sb *Sandbox) Ports(ctx context.Context) ([]Port, error) {
	var list []wire.Port
	err := sb.use(ctx, func(client *wireclient.Client) (err error) {
		list, err = client.Ports(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := make([]Port, 0, len(list))
	for _, p := range list {
		all = append(all, Port{p.Port, p.Address})
	}
	return all, nil
}

// Endpoint is a port of a sandbox on this machine's loopback, as long as this program serves it.
type Endpoint struct {
	Port  int    // in the sandbox
	Local string // 127.0.0.1:port

	sb *Sandbox
	l  net.Listener
	wg sync.WaitGroup
	mu sync.Mutex
	on map[net.Conn]bool
}

// Expose serves a port of the sandbox on this machine's loopback, whatever the sandbox's network; with a local port of 0 on any that is free. Something may
// listen in the sandbox later; until then connections end at once. ctx bounds the call and not the endpoint, which serves until Close.
func (sb *Sandbox) Expose(ctx context.Context, port, local int) (*Endpoint, error) {
	const highest = 65535
	if port < 1 || port > highest || local < 0 || local > highest {
		return nil, fmt.Errorf("port %d at %d is %w: ports are 1 to %d", port, local, ErrSpec, highest)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return nil, fmt.Errorf("serve port %d of sandbox %s: %w: %w", port, sb.spec.Name, ErrPort, err)
	}
	e := &Endpoint{Port: port, Local: l.Addr().String(), sb: sb, l: l, on: map[net.Conn]bool{}}
	e.wg.Go(func() { e.serve(context.WithoutCancel(ctx)) })
	return e, nil
}

// ErrPort means that a port of this machine cannot be had.
var ErrPort = errors.New("the port cannot be had")

// acceptPause keeps a listener that fails, for want of descriptors, from using a processor for it.
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

// join brings one connection to the port.
func (e *Endpoint) join(ctx context.Context, conn net.Conn) {
	inside, err := e.sb.Dial(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(e.Port)))
	if err != nil {
		return // the caller sees a connection that ends
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

// pass copies one way, and then says that no more comes.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close() // the other way ends too
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// keep notes a connection, for Close; it closes it where that was already.
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
