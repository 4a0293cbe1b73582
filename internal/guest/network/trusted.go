package network

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// resolveTime bounds the resolution of the hosts that boot talks to: the box starts without their addresses
// if the resolver is slow, since they are only used to keep inner networks away from them.
const resolveTime = 3 * time.Second

// TrustedHosts are the servers that boot itself talks to during a run: resolvers, git and models. An inner
// network with one of their addresses would hide them.
type TrustedHosts struct {
	names  []string
	done   chan struct{} // closed once prefixes are known
	ranges []netip.Prefix
}

// NewTrustedHosts returns the hosts of an order. Their addresses are resolved once the policy is in force.
func NewTrustedHosts(o *workorder.Order) *TrustedHosts {
	t := &TrustedHosts{names: []string{hostOf(o.CloneURL)}, done: make(chan struct{})}
	for _, r := range o.Gateway.Routes {
		t.names = append(t.names, hostOf(r.BaseURL))
	}
	return t
}

// hostOf returns the host of a URL, or of git's user@host:path; empty if it has none.
func hostOf(remote string) string {
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		return u.Hostname()
	}
	before, _, ok := strings.Cut(remote, ":")
	if !ok || strings.Contains(before, "/") {
		return ""
	}
	return before[strings.LastIndex(before, "@")+1:]
}

// start resolves the addresses; it is called once, before any call of Prefixes.
func (t *TrustedHosts) start(ctx context.Context, e *egress.Egress) {
	go func() {
		defer close(t.done)
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		all := e.Resolvers()
		for _, name := range t.names {
			if name != "" {
				all = append(all, e.Resolve(ctx, name)...)
			}
		}
		for _, a := range all {
			a = a.WithZone("")
			t.ranges = append(t.ranges, netip.PrefixFrom(a, a.BitLen()))
		}
	}()
}

// Prefixes returns their addresses. It waits for the resolver, resolveTime at most.
func (t *TrustedHosts) Prefixes() []netip.Prefix {
	<-t.done
	return t.ranges
}
