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

// Network is a network mode.
type NetworkMode string

// Network modes.
const (
	// NetworkFull reaches everything that the engine's containers reach.
	NetworkFull = NetworkMode(workorder.NetworkFull)
	// NetworkRestricted reaches only the hosts of Spec.Allow.
	NetworkRestricted = NetworkMode(workorder.NetworkRestricted)
	// NetworkNone reaches nothing. Dial still works.
	NetworkNone = NetworkMode(workorder.NetworkNone)
)

var networks = map[NetworkMode]Capability{NetworkFull: CapNetworkFull, NetworkRestricted: CapNetworkRestricted, NetworkNone: CapNetworkNone}

func (n NetworkMode) check() error {
	if _, ok := networks[n]; !ok {
		return fmt.Errorf("network %q: use %s, %s or %s", n, NetworkFull, NetworkRestricted, NetworkNone)
	}
	return nil
}

// SetNetwork changes the network policy of a running sandbox at once, including open connections if the runtime can cut
// them. The allow rules are for NetworkRestricted and replace Spec.Allow. Endpoints, Dial and running commands are not
// affected. The policy survives Stop and Reset.
func (sb *Sandbox) SetNetwork(ctx context.Context, n NetworkMode, allow ...string) error {
	err := n.check()
	if len(allow) > 0 && n != NetworkRestricted {
		err = errors.Join(err, fmt.Errorf("rules for network %s: only %s has rules", n, NetworkRestricted))
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w: %w", sb.spec.Name, ErrSpec, err)
	}
	// Reject an unsupported runtime before anything is changed.
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
	if _, id := sb.at(); id == "" { // recreating it applies the policy
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
	if sb.spec.Lifetime == LifetimeEphemeral || sb.m.state == "" {
		return nil
	}
	sb.note(registry.Event{Event: registry.EventNetworkChanged, Detail: string(n)})
	return sb.m.keep(ctx, sb)
}

// networkNow sets the current network policy in the spec of a sandbox.
func (m *Manager) networkNow(sb *Sandbox, b runtime.Box) {
	if _, ok := sb.r.(runtime.Networker); ok {
		if b.Network != "" {
			sb.spec.Network = NetworkMode(b.Network)
		}
		return
	}
	// The guest enforces it. The record has its latest policy.
	if m.state == "" || sb.foreign || !ValidName(sb.spec.Name) {
		return
	}
	var kept Spec
	rec, err := m.kept.Load(sb.spec.Name)
	if err == nil && json.Unmarshal(rec.Spec, &kept) == nil && kept.Runtime == sb.spec.Runtime {
		sb.spec.Network, sb.spec.Allow = kept.Network, kept.Allow
	}
}
