package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SetPolicy puts another policy in force, at once and in one step of the kernel's: connections that untrusted code has to the outside under the policy
// before are cut, unless the new one refuses nothing. An error leaves the policy before in force. Call it after Up.
func (e *Egress) SetPolicy(ctx context.Context, n workorder.Network) error {
	p, err := newPolicy(n)
	if err == nil && !slices.Contains(workorder.NetworkModes(), p.mode) {
		err = fmt.Errorf("mode %q is not known (known: %v)", p.mode, workorder.NetworkModes())
	}
	if err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	e.changes.Lock()
	defer e.changes.Unlock()
	if !e.up {
		return errors.New("put another network policy in force: none is yet")
	}
	next := e.now()
	next.mode, next.ports, next.switched, next.proxyPort = p.mode, p.ports(), true, 0
	if p.mode != workorder.NetworkFull && next.dnsPort == 0 {
		if next.dnsPort, err = e.listenDNS(ctx, e.run); err != nil {
			return err
		}
	}
	e.pool.reserve(p)
	proxy, cut := e.newProxy(p), func() {}
	if p.mode == workorder.NetworkRestricted {
		if next.proxyPort, cut, err = e.listenProxy(ctx, e.run, proxy); err != nil {
			return err
		}
	}
	was := e.resolver.policy.Swap(&p)
	if err := apply(ctx, ruleset(next)); err != nil {
		e.resolver.policy.Store(was)
		cut()
		return fmt.Errorf("put the network policy %q in force: %w", p.mode, err)
	}
	e.set(next)
	e.cut()
	e.mu.Lock()
	e.proxy = proxy
	e.mu.Unlock()
	e.cut = cut
	e.ledger.setMode(p.mode)
	return nil
}

// inForce is the proxy of the policy that is in force.
func (e *Egress) inForce() *proxy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.proxy
}
