package egress

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type verdict int

const (
	refused verdict = iota
	learned         // no rule matches, but learning refuses no name
	allowed
)

func (v verdict) status() workorder.NetworkStatus {
	return [...]workorder.NetworkStatus{workorder.NetworkRefused, workorder.NetworkLearned, workorder.NetworkAllowed}[v]
}

type policy struct {
	mode  workorder.NetworkMode
	learn bool
	rules []workorder.AllowRule
}

func newPolicy(n workorder.NetworkPolicy) (policy, error) {
	p := policy{mode: n.Mode, learn: n.Learn}
	for _, s := range n.Allow {
		r, err := workorder.ParseAllowRule(s)
		if err != nil {
			return policy{}, err
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

// judge decides on a canonical name or address at a port.
func (p policy) judge(host string, port uint16) verdict {
	switch {
	case slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool { return r.Match(host, port) }):
		return allowed
	case p.learn:
		return learned
	}
	return refused
}

// explicit reports whether a rule allows host with this very port.
func (p policy) explicit(host string, port uint16) bool {
	return slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool { return r.Port == port && r.Names(host) })
}

// inside reports whether a name may resolve to that private address, by the name's own rule or by one for the address.
func (p policy) inside(host string, port uint16, a netip.Addr) bool {
	return slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool {
		return r.Private && r.Match(host, port) || r.Match(a.String(), port)
	})
}

// insideFix returns the rule that lets a name resolve to private addresses; exact means for any protocol.
func (p policy) insideFix(host string, port uint16, exact bool) string {
	r := workorder.AllowRuleFor(host, port)
	if exact || p.explicit(host, port) {
		r.Port = port
	}
	r.Private = true
	return r.Line()
}

func (p policy) named(name string) bool {
	return slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool { return r.Names(name) })
}

func (p policy) ports() []uint16 {
	if p.learn {
		return nil
	}
	all := []uint16{80, 443}
	for _, r := range p.rules {
		if r.Port != 0 {
			all = append(all, r.Port)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// fix returns the rule under network.allow that would allow host at port.
func fix(host string, port uint16) string {
	if port == 0 { // only a DNS query
		port = 443
	}
	return workorder.AllowRuleFor(host, port).Line()
}

// canonical returns a name or address in the form that rules use; ok is false if it is neither.
func canonical(s string) (host string, ok bool) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.Unmap().WithZone("").String(), true
	}
	host = workorder.CanonicalHost(s)
	return host, workorder.ValidHostName(host)
}

func synthetic() netip.Prefix { return workorder.NameRange() }

// nat64 returns the well-known prefix behind which an IPv4 address can hide (RFC 6052).
func nat64() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }

// metadataRanges returns workorder.Metadata, also as seen through NAT64.
func metadataRanges() []netip.Prefix {
	all := workorder.Metadata()
	for _, p := range all {
		if !p.Addr().Is4() {
			continue
		}
		b, v4 := nat64().Addr().As16(), p.Addr().As4()
		copy(b[12:], v4[:])
		all = append(all, netip.PrefixFrom(netip.AddrFrom16(b), 96+p.Bits()))
	}
	return all
}

// never returns why the policy never allows an address; "" if it may be allowed. own are the box's ranges.
func never(a netip.Addr, own []netip.Prefix) string {
	if a = workorder.Untranslated(a); workorder.IsMetadata(a) {
		return "a metadata service of the cloud"
	}
	if why := workorder.Undialled(a); why != "" {
		return why
	}
	for _, p := range own {
		if p.Contains(a) {
			return "the sandbox itself or an inner network"
		}
	}
	return ""
}

// explicitFix returns the rule that allows host at a web port for any protocol.
func explicitFix(host string, port uint16) string {
	return workorder.AllowRule{Host: host, Port: port}.Line()
}

func parseAddr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a
}
