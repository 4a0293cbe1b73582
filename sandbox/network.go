package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Network is what a sandbox reaches.
type Network string

// The networks of sandboxes.
const (
	// NetworkFull reaches what the engine's containers do.
	NetworkFull = Network(workorder.NetworkFull)
	// NetworkRestricted reaches the hosts of Spec.Allow alone.
	NetworkRestricted = Network(workorder.NetworkRestricted)
	// NetworkNone reaches nothing. Dial works all the same.
	NetworkNone = Network(workorder.NetworkNone)
)

var networks = map[Network]Capability{NetworkFull: CapNetworkFull, NetworkRestricted: CapNetworkRestricted, NetworkNone: CapNetworkNone}

// check returns what is wrong with the name of a network.
func (n Network) check() error {
	if _, ok := networks[n]; !ok {
		return fmt.Errorf("network %q: use %s, %s or %s", n, NetworkFull, NetworkRestricted, NetworkNone)
	}
	return nil
}

// SetNetwork changes what the sandbox reaches, at once: also connections that it has, as far as its runtime can cut them. Rules are for NetworkRestricted, and take
// the place of Spec.Allow. Endpoints, Dial and commands that run go on. It stays so over a stop and a Reset.
func (sb *Sandbox) SetNetwork(ctx context.Context, n Network, allow ...string) error {
	err := n.check()
	if len(allow) > 0 && n != NetworkRestricted {
		err = errors.Join(err, fmt.Errorf("rules for network %s: only %s has rules", n, NetworkRestricted))
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w: %w", sb.spec.Name, ErrSpec, err)
	}
	// A runtime that cannot do it is named before anything is changed.
	p := sb.m.place(sb.spec.Runtime)
	if p == nil {
		return fmt.Errorf("sandbox %s: runtime %s: %w", sb.spec.Name, sb.spec.Runtime, ErrUnsupported)
	}
	has, err := p.capabilities(ctx)
	if err == nil {
		err = lacks(sb.spec.Runtime, has, []Capability{CapNetworkSwitch, networks[n]})
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", sb.spec.Name, err)
	}
	if err := sb.ready(ctx); err != nil {
		return err
	}
	if _, id := sb.at(); id == "" { // there is nothing to change before it is made anew
		if err := sb.Resume(ctx); err != nil {
			return err
		}
	}
	at, id := sb.at()
	if r, ok := at.(runtime.Networker); ok {
		err = public(r.SetNetwork(ctx, id, workorder.Network{Mode: workorder.NetworkMode(n), Allow: allow}))
	} else {
		err = sb.use(ctx, func(c *wireclient.Client) error {
			return c.SetNetwork(ctx, wire.Network{Mode: string(n), Allow: allow})
		})
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", sb.spec.Name, err)
	}
	sb.mu.Lock()
	sb.spec.Network, sb.spec.Allow = n, allow
	sb.mu.Unlock()
	if sb.spec.Lifetime == Session || sb.m.state == "" {
		return nil
	}
	sb.note(registry.Event{Event: registry.Switched, Detail: string(n)})
	return sb.m.keep(ctx, sb)
}

// networkNow corrects the network in the spec of a sandbox that has another since it was made.
func (m *Manager) networkNow(sb *Sandbox, b runtime.Box) {
	if _, ok := sb.r.(runtime.Networker); ok {
		if b.Network != "" {
			sb.spec.Network = Network(b.Network)
		}
		return
	}
	// Its guest holds it. What it was told last is kept.
	if m.state == "" || sb.foreign || !ValidName(sb.spec.Name) {
		return
	}
	var kept Spec
	rec, err := m.kept.Load(sb.spec.Name)
	if err == nil && json.Unmarshal(rec.Spec, &kept) == nil && kept.Runtime == sb.spec.Runtime {
		sb.spec.Network, sb.spec.Allow = kept.Network, kept.Allow
	}
}
