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

// resolveTime bounds asking for the addresses of the hosts that boot talks to: the box starts without them when
// the resolver is slow, since they are only kept free of inner networks.
const resolveTime = 3 * time.Second

// TrustedHosts are the servers that boot itself talks to during a run: resolvers, git and models. An inner
// network over one of them would take the way to it.
type TrustedHosts struct {
	names  []string
	done   chan struct{} // closed: prefixes are known
	ranges []netip.Prefix
}

// NewTrustedHosts are those of an order. Their addresses are asked for once the policy is in force.
func NewTrustedHosts(o *workorder.Order) *TrustedHosts {
	t := &TrustedHosts{names: []string{hostOf(o.CloneURL)}, done: make(chan struct{})}
	for _, r := range o.Gateway.Routes {
		t.names = append(t.names, hostOf(r.BaseURL))
	}
	return t
}

// hostOf is the host of a URL, or of git's user@host:path; empty means it has none.
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

// start asks for the addresses; it is called once, before anybody asks for prefixes.
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

// Prefixes are their addresses. It waits for the resolver, resolveTime at most.
func (t *TrustedHosts) Prefixes() []netip.Prefix {
	<-t.done
	return t.ranges
}
