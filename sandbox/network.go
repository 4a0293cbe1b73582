package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Network is what a sandbox reaches.
type Network string

// The networks of sandboxes.
const (
	// NetworkFull reaches what the engine's containers do.
	NetworkFull = Network(workorder.NetworkFull)
	// NetworkRestricted reaches hosts of a list.
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

// SetNetwork changes what the sandbox reaches, at once: also connections that it has, as far as its runtime can cut them. Endpoints, Dial and commands that run
// go on. It stays so over a stop and a Reset.
func (sb *Sandbox) SetNetwork(ctx context.Context, n Network) error {
	if err := n.check(); err != nil {
		return fmt.Errorf("sandbox %s: %w: %w", sb.spec.Name, ErrSpec, err)
	}
	// A runtime that cannot do it is named before anything is changed.
	i := slices.IndexFunc(sb.m.all, func(p *place) bool { return p.kind == sb.spec.Runtime })
	if i < 0 {
		return fmt.Errorf("sandbox %s: runtime %s: %w", sb.spec.Name, sb.spec.Runtime, ErrUnsupported)
	}
	has, err := sb.m.all[i].capabilities(ctx)
	if err == nil {
		err = lacks(sb.spec.Runtime, has, []Capability{CapNetworkSwitch, networks[n]})
	}
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", sb.spec.Name, err)
	}
	r, ok := sb.r.(runtime.Networker)
	if !ok {
		return fmt.Errorf("sandbox %s: %w", sb.spec.Name, &UnsupportedError{sb.spec.Runtime, []Capability{CapNetworkSwitch}})
	}
	if sb.id == "" { // there is nothing to change before it is made anew
		if err := sb.Resume(ctx); err != nil {
			return err
		}
	}
	if err := r.SetNetwork(ctx, sb.id, workorder.Network{Mode: workorder.NetworkMode(n)}); err != nil {
		return fmt.Errorf("sandbox %s: %w", sb.spec.Name, public(err))
	}
	sb.mu.Lock()
	sb.spec.Network = n
	sb.mu.Unlock()
	if sb.spec.Lifetime == Session {
		return nil
	}
	sb.note(registry.Event{Event: registry.Switched, Detail: string(n)})
	if err := sb.m.keep(ctx, sb); err != nil && !errors.Is(err, errNoState) {
		return err
	}
	return nil
}
