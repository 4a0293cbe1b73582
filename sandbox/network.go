package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NetworkMode is what a sandbox reaches.
type NetworkMode string

// Network modes.
const (
	// NetworkFull reaches everything that the engine's containers reach.
	NetworkFull = NetworkMode(workorder.NetworkFull)
	// NetworkRestricted reaches only the hosts of Spec.Allow. A box enforces it for every program. A container or jail, which must be
	// LifetimeEphemeral and is never chosen by RuntimeAuto, has only a loopback with an HTTP proxy, which its variables name: this
	// program serves it from this machine's network while it is connected.
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
	in := sb.in
	err := n.check()
	if len(allow) > 0 && n != NetworkRestricted {
		err = errors.Join(err, fmt.Errorf("rules for network %s: only %s has rules", n, NetworkRestricted))
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w: %w", in.spec.Name, ErrInvalidSpec, err)
	}
	// Reject an unsupported runtime before anything is changed.
	p := in.c.all.find(in.spec.Runtime)
	if p == nil {
		return fmt.Errorf("sandbox %s: runtime %s: %w", in.spec.Name, in.spec.Runtime, ErrUnsupported)
	}
	has, err := p.capabilities(ctx)
	if err == nil {
		err = lacks(in.spec.Runtime, has, []Capability{CapNetworkUpdate, networks[n]})
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", in.spec.Name, err)
	}
	if err := in.ready(ctx); err != nil {
		return err
	}
	if _, id := in.at(); id == "" { // recreating it applies the policy
		if err := in.resume(ctx); err != nil {
			return err
		}
	}
	at, id := in.at()
	if r, ok := at.(runtime.PolicySetter); ok {
		err = public(r.SetNetwork(ctx, id, workorder.NetworkPolicy{Mode: workorder.NetworkMode(n), Allow: allow}))
	} else {
		err = in.use(ctx, func(c *wireclient.Client) error {
			return c.SetNetwork(ctx, wire.NetworkPolicy{Mode: string(n), Allow: allow})
		})
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", in.spec.Name, err)
	}
	in.mu.Lock()
	in.spec.Network, in.spec.Allow = n, allow
	in.mu.Unlock()
	if in.spec.Lifetime == LifetimeEphemeral || in.c.state == "" {
		return nil
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventNetworkChanged, Detail: string(n)})
	return in.c.keep(ctx, in)
}

// networkNow sets the current network policy in the spec of a sandbox.
func (l *lookup) networkNow(in *instance, b runtime.Instance) {
	if _, ok := in.r.(runtime.PolicySetter); ok {
		if in.spec.proxied() { // the engine has network none
			return
		}
		if b.Network != "" {
			in.spec.Network = NetworkMode(b.Network)
		}
		return
	}
	// The guest enforces it. The record has its latest policy.
	if l.state == "" || in.foreign || !ValidName(in.spec.Name) {
		return
	}
	var kept Spec
	rec, err := l.kept.Load(in.spec.Name)
	if err == nil && json.Unmarshal(rec.Spec, &kept) == nil && kept.Runtime == in.spec.Runtime {
		in.spec.Network, in.spec.Allow = kept.Network, kept.Allow
	}
}
