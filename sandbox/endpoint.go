package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/host/portforward"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Port is a listening port of a sandbox.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"` // in the sandbox
}

// Endpoints connects to the ports of a sandbox.
type Endpoints struct{ in *instance }

// Dial connects to a port (network "tcp", address host:port) or a socket ("unix", path) in the sandbox, in any network
// mode. ctx bounds the connection attempt. The connection does not support deadlines.
func (e *Endpoints) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return query(ctx, e.in, func(c *wireclient.Client) (net.Conn, error) { return c.Dial(ctx, network, address) })
}

// Ports lists the listening ports of the sandbox.
func (e *Endpoints) Ports(ctx context.Context) ([]Port, error) {
	list, err := query(ctx, e.in, func(c *wireclient.Client) ([]wire.Port, error) { return c.Ports(ctx) })
	if err != nil {
		return nil, err
	}
	return portsOf(list), nil
}

func portsOf(list []wire.Port) []Port {
	all := make([]Port, 0, len(list))
	for _, p := range list {
		all = append(all, Port{p.Port, p.Address})
	}
	return all
}

// Endpoint serves a port of a sandbox on the host's loopback until Close.
type Endpoint struct {
	Port  int    // in the sandbox
	Local string // 127.0.0.1:port

	e *portforward.Endpoint
}

const highestPort = 65535

// ErrPortUnavailable means that a port of the host is unavailable.
var ErrPortUnavailable = errors.New("port unavailable")

// Expose serves a port of the sandbox on the host's loopback, in any network mode. A local port of 0 means any free one. While nothing
// listens in the sandbox, or it is stopped, connections are closed at once. ctx bounds the call, not the endpoint.
func (e *Endpoints) Expose(ctx context.Context, port, local int) (*Endpoint, error) {
	if port < 1 || port > highestPort || local < 0 || local > highestPort {
		return nil, fmt.Errorf("port %d at %d: %w: ports are 1 to %d", port, local, ErrInvalidSpec, highestPort)
	}
	l, err := portforward.Listen(ctx, local, func(ctx context.Context) (net.Conn, error) { return e.DialPort(ctx, port) })
	if err != nil {
		return nil, fmt.Errorf("serve port %d of sandbox %s: %w: %w", port, e.in.spec.Name, ErrPortUnavailable, err)
	}
	return &Endpoint{Port: port, Local: l.Addr(), e: l}, nil
}

// DialPort connects to a port of the sandbox's loopback. It never starts the sandbox: nothing listens in one that has just started.
func (e *Endpoints) DialPort(ctx context.Context, port int) (net.Conn, error) {
	var conn net.Conn
	err := e.in.useAsItIs(ctx, func(client *wireclient.Client) (err error) {
		conn, err = client.Dial(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
		return err
	})
	return conn, err
}

// Close closes the endpoint and its connections.
func (e *Endpoint) Close() error { return e.e.Close() }
