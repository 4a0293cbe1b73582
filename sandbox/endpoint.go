package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/host/endpoint"
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
	return portsOf(list), nil
}

func portsOf(list []wire.Port) []Port {
	all := make([]Port, 0, len(list))
	for _, p := range list {
		all = append(all, Port{p.Port, p.Address})
	}
	return all
}

// Endpoint is a port of a sandbox on this machine's loopback, as long as this program serves it.
type Endpoint struct {
	Port  int    // in the sandbox
	Local string // 127.0.0.1:port

	e *endpoint.Endpoint
}

// highestPort is that of TCP.
const highestPort = 65535

// ErrPort means that a port of this machine cannot be had.
var ErrPort = errors.New("the port cannot be had")

// Expose serves a port of the sandbox on this machine's loopback, whatever the sandbox's network; with a local port of 0 on any that is free. Something may
// listen in the sandbox later; until then, and while the sandbox is stopped, connections end at once. ctx bounds the call and not the endpoint, which serves until
// Close.
func (sb *Sandbox) Expose(ctx context.Context, port, local int) (*Endpoint, error) {
	if port < 1 || port > highestPort || local < 0 || local > highestPort {
		return nil, fmt.Errorf("port %d at %d is %w: ports are 1 to %d", port, local, ErrSpec, highestPort)
	}
	e, err := endpoint.Listen(ctx, local, func(ctx context.Context) (net.Conn, error) { return sb.Reach(ctx, port) })
	if err != nil {
		return nil, fmt.Errorf("serve port %d of sandbox %s: %w: %w", port, sb.spec.Name, ErrPort, err)
	}
	return &Endpoint{Port: port, Local: e.Addr(), e: e}, nil
}

// Reach connects to a port of the sandbox's loopback as Dial does, but never starts a sandbox that has ended: nothing listens in one that has just begun.
func (sb *Sandbox) Reach(ctx context.Context, port int) (net.Conn, error) {
	var conn net.Conn
	err := sb.useAsItIs(ctx, func(client *wireclient.Client) (err error) {
		conn, err = client.Dial(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
		return err
	})
	return conn, err
}

// Close ends the endpoint and its connections.
func (e *Endpoint) Close() error { return e.e.Close() }
