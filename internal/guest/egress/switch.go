package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SetPolicy replaces the policy in one step of the kernel. Connections that untrusted code opened to the
// outside under the previous policy are cut, unless the new one refuses nothing. On error the previous policy
// stays in force. Call it after Up.
func (e *Egress) SetPolicy(ctx context.Context, n workorder.Network) error {
	p, err := newPolicy(n)
	if err == nil && !slices.Contains(workorder.NetworkModes(), p.mode) {
		err = fmt.Errorf("unknown mode %q (known: %v)", p.mode, workorder.NetworkModes())
	}
	if err != nil {
		return fmt.Errorf("network policy: %w", err)
	}
	e.changes.Lock()
	defer e.changes.Unlock()
	if !e.up {
		return errors.New("replace the network policy: none is in force")
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
		return fmt.Errorf("apply the network policy %q: %w", p.mode, err)
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

func (e *Egress) inForce() *proxy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.proxy
}
