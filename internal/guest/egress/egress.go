// Package egress enforces the network policy of the box with nftables, a resolver and a proxy. See docs/design/untrusted-agent.md.
//
// If a policy cannot be applied, Up returns an error: there is no fallback to a weaker policy.
package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	hostsPath      = "/etc/hosts"
	resolvConfPath = "/etc/resolv.conf"
	// portTries bounds the search for a port that is free for UDP and TCP, IPv4 and IPv6.
	portTries = 16
)

// Config is the policy to enforce and the receivers of its events.
type Config struct {
	Policy workorder.NetworkPolicy
	// EngineGID is the primary group of the inner engine's daemon alone, by which its sockets are recognised. It must not be 0.
	EngineGID uint32
	// Resolvers are the upstream resolvers; nil means those of the box's resolv.conf.
	Resolvers []netip.Addr
	Origin    *connowner.Finder     // names processes and containers; may be nil
	Emit      func(workorder.Event) // EventNetwork, only the first of its kind; EventWarning
	Log       *slog.Logger
}

// Egress is the network policy of the box.
type Egress struct {
	cfg      Config
	resolver *resolver
	lookup   *lookup
	ledger   *accessLog
	proxy    *proxy
	pool     *pool
	run      context.Context // of all servers, from Up to Close
	cut      func()          // ends the proxy and its connections

	changes sync.Mutex // serialises changes of the rules; a change may take as long as the kernel needs
	up      bool
	stop    context.CancelFunc
	closes  []func()
	serving netip.AddrPort // of ServeDNS

	mu    sync.Mutex // protects only state, which every lookup reads
	state kernelState
}

// New prepares the policy; nothing is in force before Up.
func New(cfg Config) (*Egress, error) {
	p, err := newPolicy(cfg.Policy)
	if err != nil {
		return nil, fmt.Errorf("network policy: %w", err)
	}
	if !slices.Contains(workorder.NetworkModes(), p.mode) {
		return nil, fmt.Errorf("network policy: unknown mode %q (known: %v)", p.mode, workorder.NetworkModes())
	}
	if cfg.EngineGID == 0 {
		return nil, errors.New("network policy: the inner engine needs a separate group; with group 0 it could not be distinguished from boot")
	}
	if cfg.Emit == nil {
		cfg.Emit = func(workorder.Event) {}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	servers, search, err := resolvConf(resolvConfPath)
	if err != nil {
		return nil, fmt.Errorf("network policy: read the resolvers of the sandbox: %w", err)
	}
	upstream := cfg.Resolvers
	if upstream == nil {
		upstream = servers
	}
	e := &Egress{cfg: cfg, ledger: newLedger(p.mode, cfg.Emit), pool: newPool(p)}
	var ups []netip.AddrPort
	for _, a := range upstream {
		ups = append(ups, netip.AddrPortFrom(a, 53))
	}
	e.lookup = &lookup{
		upstream: ups, hosts: &hostsFile{path: hostsPath}, slots: make(chan struct{}, lookupParallel), cache: map[string]cached{},
	}
	e.resolver = &resolver{
		pool: e.pool, lookup: e.lookup, ledger: e.ledger, search: search, local: e.isLocal, services: map[string]netip.Addr{},
	}
	e.resolver.policy.Store(&p)
	e.proxy, e.cut = e.newProxy(p), func() {}
	e.state = kernelState{mode: p.mode, engineGID: cfg.EngineGID, ports: p.ports(), resolvers: append(servers, upstream...)}
	return e, nil
}

func (e *Egress) newProxy(p policy) *proxy {
	x := &proxy{
		policy: p, pool: e.pool, lookup: e.lookup, ledger: e.ledger, origin: e.cfg.Origin,
		warn:     func(s string) { e.cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: s}) },
		original: originalDst, ownRanges: e.ownRanges, never: never, reach: race,
	}
	x.web = newHTTPProxy(x)
	return x
}

// Up applies the policy: afterwards the resolver and the proxy answer and the kernel enforces the rules. Call it before
// untrusted code runs and before any interface is created in the box: the existing ones count as outside.
func (e *Egress) Up(ctx context.Context) error {
	e.changes.Lock()
	defer e.changes.Unlock()
	if e.up {
		return errors.New("apply the network policy: already applied")
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.run, e.stop = run, stop
	if err := e.bringUp(ctx, run); err != nil {
		stop()
		e.closeAll()
		return fmt.Errorf("apply the network policy %q: %w", e.cfg.Policy.Mode, err)
	}
	e.up = true
	return nil
}

func (e *Egress) bringUp(ctx, run context.Context) error {
	var err error
	next := e.now()
	if next.outside, next.own, err = outsideInterfaces(); err != nil {
		return err
	}
	if next.mode != workorder.NetworkFull {
		if next.dnsPort, err = e.listenDNS(ctx, run); err != nil {
			return err
		}
	}
	if next.mode == workorder.NetworkRestricted {
		if next.proxyPort, e.cut, err = e.listenProxy(ctx, run, e.proxy); err != nil {
			return err
		}
	}
	if l, err := openNFLog(logGroup); err != nil {
		next.unlogged = true
		e.cfg.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf(
			"packets that the kernel refuses are only counted (nft list table inet sandbox_agent) and not reported, because the kernel has "+
				"no log of them (it needs nfnetlink_log): %v",
			err,
		)})
	} else {
		e.closes = append(e.closes, func() { l.Close() })
		go e.watch(l)
	}
	if err := apply(ctx, ruleset(next)); err != nil {
		return err
	}
	e.set(next)
	return nil
}

func (e *Egress) now() kernelState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

func (e *Egress) set(s kernelState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = s
}

// Seal applies the policy to the inner engine's daemon, too. Connections that it opened to the outside before are cut. Before Up, it
// makes Up do so.
func (e *Egress) Seal(ctx context.Context) error {
	err := e.change(ctx, func(s *kernelState) { s.sealed = true })
	if err != nil {
		return fmt.Errorf("apply the network policy to the inner engine: %w", err)
	}
	return nil
}

// Inner adds a range of the inner engine's networks: trusted processes reach it, and names in it are not dialled.
func (e *Egress) Inner(ctx context.Context, prefix netip.Prefix) error {
	err := e.change(ctx, func(s *kernelState) { s.inner = append(slices.Clone(s.inner), prefix.Masked()) })
	if err != nil {
		return fmt.Errorf("let trusted processes reach the inner networks %s: %w", prefix, err)
	}
	return nil
}

// change applies a new state; if the kernel refuses it, the old one stays in force.
func (e *Egress) change(ctx context.Context, f func(*kernelState)) error {
	e.changes.Lock()
	defer e.changes.Unlock()
	next := e.now()
	f(&next)
	if e.up {
		if err := apply(ctx, ruleset(next)); err != nil {
			return err
		}
	}
	e.set(next)
	return nil
}

// Resolvers returns the box's resolvers.
func (e *Egress) Resolvers() []netip.Addr { return slices.Clone(e.now().resolvers) }

// Resolve returns a host's addresses as trusted processes of the box resolve it; empty if it cannot be resolved.
func (e *Egress) Resolve(ctx context.Context, host string) []netip.Addr {
	all, err := e.lookup.addresses(ctx, workorder.CanonicalHost(host))
	if err != nil {
		e.cfg.Log.Warn("resolve a trusted host", "host", host, "error", err)
	}
	return all
}

// Names adds the names of services to those that the resolver knows.
func (e *Egress) Names(names map[string]netip.Addr) { e.resolver.setNames(names) }

// Report returns the attempts so far.
func (e *Egress) Report() workorder.NetworkReport { return e.ledger.report() }

// Close ends the resolver and the proxy. The rules stay in force, because untrusted code may still run.
func (e *Egress) Close() {
	e.changes.Lock()
	defer e.changes.Unlock()
	if e.stop != nil {
		e.stop()
	}
	e.closeAll()
}

func (e *Egress) closeAll() {
	e.cut()
	for _, f := range slices.Backward(e.closes) {
		f()
	}
	e.closes = nil
}

// ownRanges returns the ranges that names must not resolve to: the box's current addresses and its inner networks.
func (e *Egress) ownRanges() []netip.Prefix {
	state := e.now()
	outside := singles(state.own)
	own := append(slices.Clone(outside), state.inner...)
	all, err := net.InterfaceAddrs() // one kernel request for any number of interfaces
	if err != nil {
		return own
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits())
		// Neighbours outside may be dialled, but not those on a network that was created in the box.
		if !slices.Contains(outside, netip.PrefixFrom(p.Addr(), p.Addr().BitLen())) {
			own = append(own, p.Masked())
		}
	}
	return own
}

func (e *Egress) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.ContainsFunc(e.ownRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// outsideInterfaces returns the interfaces and their addresses that the box has before it creates its own.
func outsideInterfaces() (names []string, own []netip.Addr, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil, fmt.Errorf("list the interfaces of the sandbox: %w", err)
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		names = append(names, i.Name)
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				own = append(own, p.Addr())
			}
		}
	}
	slices.Sort(names)
	return names, own, nil
}

// listenDNS opens the resolver on one port of all addresses, where redirected packets arrive.
func (e *Egress) listenDNS(ctx, run context.Context) (uint16, error) {
	port, open, err := samePort(ctx, "udp4", "tcp4", "udp6", "tcp6")
	if err != nil {
		return 0, fmt.Errorf("open the resolver: %w", err)
	}
	e.closes = append(e.closes, open.close)
	for network, c := range open {
		switch c := c.(type) {
		case net.Listener:
			go e.serveTCP(run, c)
		case net.PacketConn:
			wrap := newPackets4
			if network == "udp6" {
				wrap = newPackets6
			}
			p, err := wrap(c)
			if err != nil {
				return 0, fmt.Errorf("open the resolver: %w", err)
			}
			go e.serveUDP(run, p)
		}
	}
	return port, nil
}

// listenProxy opens a proxy. cut ends it with all its connections.
func (e *Egress) listenProxy(ctx, run context.Context, p *proxy) (port uint16, cut func(), err error) {
	port, open, err := samePort(ctx, "tcp4", "tcp6")
	if err != nil {
		return 0, func() {}, fmt.Errorf("open the proxy: %w", err)
	}
	go func() { _ = p.web.server.Serve(p.web) }()
	for _, c := range open {
		if l, ok := c.(net.Listener); ok {
			go p.serve(run, l)
		}
	}
	return port, func() { open.close(); p.web.Close(); p.web.server.Close(); p.closeClients() }, nil
}

type sockets map[string]interface{ Close() error }

func (s sockets) close() {
	for _, c := range s {
		c.Close()
	}
}

// samePort opens sockets on one port of all addresses. A kernel without IPv6 opens only IPv4 sockets.
func samePort(ctx context.Context, networks ...string) (uint16, sockets, error) {
	var err error
	for range portTries {
		s := sockets{}
		var port uint16
		if port, err = s.open(ctx, networks); err == nil {
			return port, s, nil
		}
		s.close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return 0, nil, err
}

func (s sockets) open(ctx context.Context, networks []string) (uint16, error) {
	var lc net.ListenConfig
	var port uint16
	for _, n := range networks {
		addr := fmt.Sprintf(":%d", port)
		var local net.Addr
		if n[0] == 'u' {
			c, err := lc.ListenPacket(ctx, n, addr)
			if err != nil && n == "udp6" && noIPv6(err) {
				continue
			}
			if err != nil {
				return 0, err
			}
			s[n], local = c, c.LocalAddr()
		} else {
			l, err := lc.Listen(ctx, n, addr)
			if err != nil && n == "tcp6" && noIPv6(err) {
				continue
			}
			if err != nil {
				return 0, err
			}
			s[n], local = l, l.Addr()
		}
		a, err := netip.ParseAddrPort(local.String())
		if err != nil {
			return 0, err
		}
		port = a.Port()
	}
	return port, nil
}

func noIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// SetPolicy replaces the policy in one step of the kernel. Connections of untrusted code to the outside are cut, unless
// the new policy refuses nothing. On error the previous policy stays. Call it after Up.
func (e *Egress) SetPolicy(ctx context.Context, n workorder.NetworkPolicy) error {
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
