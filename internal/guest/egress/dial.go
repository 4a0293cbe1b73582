package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// dialTime bounds all attempts to reach one host.
	dialTime = 15 * time.Second
	// dialStagger is the head start of an address over the next (RFC 8305, 5).
	dialStagger = 250 * time.Millisecond
	// maxDialled bounds the addresses of a host that are tried.
	maxDialled = 8
)

// errForbidden means that the name resolves only to addresses that the policy never allows.
type errForbidden struct {
	why    string
	inside bool // the addresses are private, which a rule can allow
}

func (e errForbidden) Error() string { return e.why }

// dial connects to a canonical name or address that it resolves itself. to classifies the addresses.
func (p *proxy) dial(ctx context.Context, host string, port uint16) (c *net.TCPConn, to addrScope, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	all, err := p.lookup.addresses(ctx, host)
	if err != nil {
		return nil, public, fmt.Errorf("resolve %s: %w", host, err)
	}
	own := p.ownRanges()
	why := ""
	targets := slices.DeleteFunc(interleave(all), func(a netip.Addr) bool {
		w := p.never(a, own)
		if w != "" {
			why = fmt.Sprintf("%s is %s, %s, which no rule can allow", host, a, w)
			if host == a.String() {
				why = fmt.Sprintf("%s is %s, which no rule can allow", host, w)
			}
		}
		return w != ""
	})
	// A name's server could point it into the user's own networks. The box's own /etc/hosts is root's.
	unsaid := false
	if !parseAddr(host).IsValid() && len(p.lookup.hosts.addresses(host)) == 0 {
		targets = slices.DeleteFunc(targets, func(a netip.Addr) bool {
			switch {
			case !workorder.PrivateAddress(a):
				return false
			case p.policy.inside(host, port, a):
				to = max(to, inside)
				return false
			}
			why = fmt.Sprintf("%s is %s, a private address, and no rule allows that", host, a)
			unsaid = true
			if p.policy.learn {
				to = insideNoRule
			}
			return !p.policy.learn
		})
	}
	if len(targets) == 0 {
		return nil, to, errForbidden{why, unsaid}
	}
	c, err = p.reach(ctx, targets[:min(len(targets), maxDialled)], port)
	return c, to, err
}

type addrScope int

const (
	public       addrScope = iota
	inside                 // private addresses, allowed by a rule
	insideNoRule           // private addresses, not allowed by any rule
)

// interleave alternates the families, IPv6 first, each in its order.
func interleave(all []netip.Addr) []netip.Addr {
	var v4, v6, r []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	for i := range max(len(v4), len(v6)) {
		if i < len(v6) {
			r = append(r, v6[i])
		}
		if i < len(v4) {
			r = append(r, v4[i])
		}
	}
	return r
}

// race is Happy Eyeballs: it tries a further address after dialStagger, or after a failure.
func race(ctx context.Context, targets []netip.Addr, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   *net.TCPConn
		err error
	}
	results := make(chan result, len(targets))
	start := func(a netip.Addr) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		t, _ := c.(*net.TCPConn)
		results <- result{t, err}
	}
	var errs []error
	next, running := 0, 0
	for {
		if next < len(targets) {
			go start(targets[next])
			next++
			running++
		}
		if running == 0 {
			return nil, errors.Join(errs...)
		}
		var more <-chan time.Time
		if next < len(targets) {
			more = time.After(dialStagger)
		}
		select {
		case r := <-results:
			running--
			if r.err == nil {
				go func() { // close the losers
					for range running {
						if l := <-results; l.c != nil {
							l.c.Close()
						}
					}
				}()
				return r.c, nil
			}
			errs = append(errs, r.err)
		case <-more:
		}
	}
}

// splice copies both ways until both ends are done, and passes on the end of one side.
func splice(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	pipe := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			reset(to)
			reset(from)
			return
		}
		_ = to.CloseWrite()
	}
	wg.Go(func() { pipe(a, b) })
	wg.Go(func() { pipe(b, a) })
	wg.Wait()
	a.Close()
	b.Close()
}

// reset closes a connection with a reset, which the peer notices at once.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
