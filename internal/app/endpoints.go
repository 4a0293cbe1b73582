package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/host/portforward"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// EndpointsCommand is the hidden command of this program that serves a sandbox's endpoints in a process of its own.
const EndpointsCommand = "serve-endpoints"

// Endpoints are the use cases of sandboxes' ports on this machine.
type Endpoints struct{ *Env }

// Endpoints returns the use cases of sandboxes' ports on this machine.
func (e *Env) Endpoints() Endpoints { return Endpoints{e} }

// Port is a port of a sandbox with its port on this machine.
type Port = portforward.Port

// Forwarder returns the port forwarder of a sandbox. Its process exists from the first endpoint on.
func (p Endpoints) Forwarder(name string) (*portforward.Forwarder, error) {
	dir, err := p.StateDir()
	if err != nil {
		return nil, err
	}
	k := &portforward.Forwarder{Dir: sandboxstore.New(dir).Dir(name)}
	if p.Executable == nil {
		return k, nil
	}
	exe, err := p.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// Its current directory differs from this command's.
	k.Argv, k.Env = []string{exe, EndpointsCommand, name}, append(os.Environ(), "SANDBOX_AGENT_STATE_DIR="+dir)
	return k, nil
}

// Ensure restarts the port forwarder of a sandbox that has endpoints. An error is only a warning: commands work without endpoints.
func (p Endpoints) Ensure(ctx context.Context, name string) {
	k, err := p.Forwarder(name)
	if err == nil {
		err = k.Ensure(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.Warn(err.Error())
	}
}

// List returns a sandbox's endpoints: its ports with their addresses on this machine.
func (p Endpoints) List(name string) (map[string]string, error) {
	k, err := p.Forwarder(name)
	if err != nil {
		return nil, err
	}
	ports, err := k.Ports()
	return Addresses(ports), err
}

// Addresses maps ports of a sandbox to their addresses on this machine.
func Addresses(ports []Port) map[string]string {
	all := map[string]string{}
	for _, p := range ports {
		all[strconv.Itoa(p.Port)] = LocalAddress(p)
	}
	return all
}

// LocalAddress returns the address of a port on this machine.
func LocalAddress(p Port) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Local)) }

// Add publishes ports of a sandbox.
func (p Endpoints) Add(ctx context.Context, name string, ports []Port) ([]Port, error) {
	k, err := p.Forwarder(name)
	if err != nil {
		return nil, err
	}
	for _, n := range ports {
		// Until the previous release the order was PORT:LOCAL, and a script that was written for it must not change its meaning silently.
		if n.Local != 0 && n.Local != n.Port {
			p.Say(fmt.Sprintf("note: %d:%d is LOCAL:PORT: port %[2]d of the sandbox, port %[1]d of this machine", n.Local, n.Port))
		}
	}
	added, err := k.Add(ctx, ports)
	return added, SandboxError(err)
}

// Remove ends endpoints of a sandbox.
func (p Endpoints) Remove(ctx context.Context, name string, ports []int) error {
	k, err := p.Forwarder(name)
	if err == nil {
		err = k.Remove(ctx, ports)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return NotFound(err, "`sandbox-agent ports "+name+"` lists endpoints")
	}
	return SandboxError(err)
}

// Serve serves the endpoints of a sandbox until it is gone or ctx ends.
func (p Endpoints) Serve(ctx context.Context, name string) error {
	m, err := p.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := p.Registry()
	if err != nil {
		return err
	}
	return portforward.Serve(ctx, s.Dir(name), &exposed{m: m, name: name})
}

// exposed is a sandbox as its port forwarder sees it.
type exposed struct {
	m    *sandbox.Manager
	name string
	mu   sync.Mutex
	sb   *sandbox.Sandbox
}

// DialPort implements portforward.Sandbox.
func (e *exposed) DialPort(ctx context.Context, port int) (net.Conn, error) {
	sb, err := e.find(ctx, nil)
	if err != nil {
		return nil, err
	}
	conn, err := sb.Endpoints().DialPort(ctx, port)
	if !errors.Is(err, sandbox.ErrNotFound) {
		return conn, err
	}
	if sb, err = e.find(ctx, sb); err != nil { // it was recreated
		return nil, err
	}
	return sb.Endpoints().DialPort(ctx, port)
}

// find returns the sandbox. It looks the sandbox up again if the known one is stale.
func (e *exposed) find(ctx context.Context, stale *sandbox.Sandbox) (*sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sb == stale {
		sb, err := e.m.Get(ctx, e.name)
		if err != nil {
			return nil, err
		}
		if e.sb != nil {
			_ = e.sb.Close() // it is not used any more
		}
		e.sb = sb
	}
	return e.sb, nil
}

// CheckExists implements portforward.Sandbox.
func (e *exposed) CheckExists(ctx context.Context) error {
	sb, err := e.m.Get(ctx, e.name)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && sb.Info().State == sandbox.StateMissing {
		return portforward.ErrGone
	}
	return err
}

// ParsePorts reads ports to publish, as [LOCAL:]PORT.
func ParsePorts(all []string) ([]Port, error) {
	var errs []error
	ports := make([]Port, 0, len(all))
	for _, t := range all {
		local, inside, both := strings.Cut(t, ":")
		if !both {
			inside = local
		}
		in, err := strconv.ParseUint(inside, 10, 16)
		out := uint64(0)
		if err == nil && both {
			out, err = strconv.ParseUint(local, 10, 16)
		}
		switch {
		case err != nil || in == 0 || both && out == 0:
			errs = append(errs, fmt.Errorf("port %q: use PORT or LOCAL:PORT, from 1 to 65535", t))
		case slices.ContainsFunc(ports, func(p Port) bool { return p.Port == int(in) }):
			errs = append(errs, fmt.Errorf("port %d is named twice", in))
		}
		ports = append(ports, Port{Port: int(in), Local: int(out)})
	}
	return ports, errors.Join(errs...)
}
