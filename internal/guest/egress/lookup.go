package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// lookupTime bounds the answer of one upstream resolver; clients give up after 5 s.
	lookupTime = 2 * time.Second
	// lookupParallel bounds the concurrent upstream queries.
	lookupParallel = 64
	// cacheTime is how long an answer is used; it is far below clients' cache times.
	cacheTime  = 30 * time.Second
	cacheNames = 4096
	// hostsTime is the time between checks of /etc/hosts: services enter their names while a box starts.
	hostsTime = time.Second
)

// errNoSuchName means that the name does not exist or has no address upstream.
var errNoSuchName = errors.New("no such name")

// lookup resolves names as trusted processes of the box do: /etc/hosts, then the resolvers of the box.
type lookup struct {
	upstream []netip.AddrPort
	hosts    *hostsFile
	slots    chan struct{}

	mu    sync.Mutex
	cache map[string]cached
}

type cached struct {
	addrs []netip.Addr // empty if the name does not exist
	until time.Time
}

// addresses resolves a canonical name; an address resolves to itself.
func (l *lookup) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}, nil
	}
	if all := l.hosts.addresses(name); len(all) > 0 {
		return all, nil
	}
	l.mu.Lock()
	c, ok := l.cache[name]
	l.mu.Unlock()
	if !ok || time.Now().After(c.until) {
		all, err := l.ask(ctx, name)
		if err != nil && !errors.Is(err, errNoSuchName) {
			return nil, err
		}
		c = cached{addrs: all, until: time.Now().Add(cacheTime)}
		l.keep(name, c)
	}
	if len(c.addrs) == 0 {
		return nil, errNoSuchName
	}
	return c.addrs, nil
}

func (l *lookup) keep(name string, c cached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cache) >= cacheNames {
		clear(l.cache) // rare, and costs only repeated queries
	}
	l.cache[name] = c
}

func (l *lookup) ask(ctx context.Context, name string) ([]netip.Addr, error) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err := errors.New("the sandbox has no resolver")
	for _, up := range l.upstream {
		var all []netip.Addr
		if all, err = askOne(ctx, up, name); err == nil {
			return all, nil
		}
		if de, ok := errors.AsType[*net.DNSError](err); ok && de.IsNotFound {
			return nil, errNoSuchName
		}
	}
	return nil, err
}

func askOne(ctx context.Context, up netip.AddrPort, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, up.String())
	}}
	all, err := r.LookupNetIP(ctx, "ip", name+".") // the dot: no search domains
	for i, a := range all {
		all[i] = a.Unmap().WithZone("")
	}
	return all, err
}

type hostsFile struct {
	path string

	mu     sync.Mutex
	read   time.Time
	byName map[string][]netip.Addr
	byAddr map[netip.Addr][]string
}

func (h *hostsFile) addresses(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.load()
	return h.byName[name]
}

func (h *hostsFile) names(a netip.Addr) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.load()
	return h.byAddr[a.Unmap()]
}

func (h *hostsFile) load() {
	if !h.read.IsZero() && time.Since(h.read) < hostsTime {
		return
	}
	b, err := os.ReadFile(h.path)
	if err != nil && h.byName != nil {
		return // it is being replaced
	}
	h.read = time.Now()
	h.byName = map[string][]netip.Addr{}
	h.byAddr = map[netip.Addr][]string{}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		a = a.Unmap().WithZone("")
		for _, n := range f[1:] {
			n = workorder.CanonicalHost(n)
			h.byName[n] = append(h.byName[n], a)
			h.byAddr[a] = append(h.byAddr[a], n)
		}
	}
}

func resolvConf(path string) (servers []netip.Addr, search []string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(f[1]); err == nil {
				servers = append(servers, a)
			}
		case "search", "domain":
			search = search[:0]
			for _, d := range f[1:] {
				search = append(search, workorder.CanonicalHost(d))
			}
		}
	}
	return servers, search, nil
}

// maxNames bounds the names with a synthetic address; only a domain with a wildcard can exhaust it.
const maxNames = 32768

// pool assigns synthetic addresses to names, for the life of the box.
type pool struct {
	mu     sync.RWMutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	next   netip.Addr
}

// newPool reserves the names of the rules, so that they have an address whatever other names are queried.
func newPool(p policy) *pool {
	s := &pool{byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}, next: synthetic().Addr().Next()}
	s.reserve(p)
	return s
}

func (s *pool) reserve(p policy) {
	for _, r := range p.rules {
		if _, err := netip.ParseAddr(r.Host); err != nil && !r.Sub {
			s.address(r.Host)
		}
	}
}

// address returns the synthetic address of a canonical name; invalid if there are too many names.
func (s *pool) address(name string) netip.Addr {
	s.mu.RLock()
	a, ok := s.byName[name]
	s.mu.RUnlock()
	if ok {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.byName[name]; ok {
		return a
	}
	if len(s.byName) >= maxNames {
		return netip.Addr{}
	}
	a = s.next
	s.next = a.Next()
	s.byName[name], s.byAddr[a] = a, name
	return a
}

func (s *pool) name(a netip.Addr) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.byAddr[a.Unmap()]
	return n, ok
}
