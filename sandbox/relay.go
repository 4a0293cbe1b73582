package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// relayIdle is how long a relay stays without use: it has the memory of a process.
const relayIdle = 5 * time.Minute

// relayed is a relay's description of its sandbox.
type relayed struct {
	Host     string           `json:"host"` // the engine's
	Instance runtime.Instance `json:"instance"`
}

// relay is the path of a sandbox's relay. It is short, since a socket's path is.
func (rs *records) relay(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(rs.state, "relays", hex.EncodeToString(sum[:8]))
}

// hostOf returns the address of a runtime's engine; "" if it has none.
func hostOf(r runtime.SandboxRuntime) string {
	if e, ok := r.(interface{ Host() string }); ok {
		return e.Host()
	}
	return ""
}

// GetRelayed finds a running sandbox by its relay, over whose connection the result runs commands; nil if no relay serves
// the sandbox (see ServeRelay). It does not contact the engine, which takes longer than a short command.
func (m *Manager) GetRelayed(ctx context.Context, name string) *Sandbox {
	cr := m.creator
	if cr.state == "" || cr.allUsers {
		return nil
	}
	var d relayed
	c, err := wireclient.DialRelay(ctx, cr.relay(name), &d)
	if err != nil {
		return nil
	}
	if in := cr.byRelay(name, d); in != nil {
		in.conn.client = c
		return &Sandbox{in}
	}
	_ = c.Close() // it is not used
	return nil
}

// byRelay returns the sandbox that a relay describes; nil if it is not the one that find would return, or not fit for use.
func (l *lookup) byRelay(name string, d relayed) *instance {
	p := l.all.find(known(d.Instance).Runtime)
	if p == nil || d.Instance.Labels[labelName] != name {
		return nil
	}
	r, err := p.open()
	if err != nil || hostOf(r) != d.Host {
		return nil
	}
	owner, err := l.owner(false)
	if err != nil {
		return nil
	}
	in := l.known(p, r, d.Instance, owner)
	if in.foreign || in.damaged != nil || in.unfit() != nil {
		return nil
	}
	in.running, in.ended = false, false // if the connection is lost, it may have stopped
	return in
}

// ServeRelay keeps a connection to a running sandbox and serves it to other processes of this user, for GetRelayed. It
// returns when the sandbox or ctx has ended, or when the connection was not used for five minutes.
func (m *Manager) ServeRelay(ctx context.Context, name string) error {
	cr := m.creator
	if cr.state == "" {
		return errNoState
	}
	path := cr.relay(name)
	if !wireclient.RelayPossible(ctx, path) {
		return nil
	}
	in, d := (*instance)(nil), relayed{}
	err := cr.visit(ctx, map[string]string{labelName: name}, func(found *instance, b runtime.Instance) (more bool) {
		if found.foreign {
			return true
		}
		in, d.Instance = found, b
		return false
	})
	if in == nil || in.damaged != nil || !in.running {
		return fmt.Errorf("sandbox %s: %w", name, errors.Join(ErrNotFound, err))
	}
	d.Host = hostOf(in.r)
	c, err := in.dial(ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return wireclient.Relay{Path: path, Idle: relayIdle, Document: d}.Serve(ctx, c)
}

// NeedsRelay reports whether a relay would make the next command of this sandbox faster: connections to its runtime are
// slow, and no relay serves it.
func (sb *Sandbox) NeedsRelay(ctx context.Context) bool {
	in := sb.in
	p := in.c.all.find(in.spec.Runtime)
	return p != nil && p.onEngine() && in.c.state != "" && in.spec.Lifetime == LifetimeNamed &&
		wireclient.RelayPossible(ctx, in.c.relay(in.spec.Name))
}
