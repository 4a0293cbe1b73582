package egress

import (
	"net/netip"
	"sync"
)

// maxNames bounds the names with a synthetic address. It is below the size of the
// range (131,072) and far above a run's needs; only a domain with a wildcard can exhaust it.
const maxNames = 32768

// pool assigns synthetic addresses to names, for the life of the box.
type pool struct {
	mu     sync.RWMutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	next   netip.Addr
}

// newPool reserves the names of the rules, so that they have an address
// whatever other names are queried.
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

// name returns the name of a synthetic address.
func (s *pool) name(a netip.Addr) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.byAddr[a.Unmap()]
	return n, ok
}
