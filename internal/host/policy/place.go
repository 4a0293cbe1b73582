package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Network has the settings that decide whether a box reaches a place.
type Network struct {
	Mode     workorder.NetworkMode
	Rules    []workorder.AllowRule
	Services []workorder.Service
}

// https is the default port of a place.
const https = 443

// Allows reports whether a box of that network reaches a place; says names the rule or
// the reason.
func (n Network) Allows(place workorder.AllowRule) (says string, ok bool) {
	port := cmp.Or(place.Port, https)
	addr, _ := netip.ParseAddr(place.Host)
	switch {
	case slices.ContainsFunc(workorder.Metadata(), func(p netip.Prefix) bool { return p.Contains(addr) }):
		return "refused: metadata services of clouds are out of reach with every network", false
	case place.Host == "localhost" || addr.IsLoopback():
		return "allowed: it is the sandbox itself", true
	case slices.ContainsFunc(n.Services, func(s workorder.Service) bool { return s.Name == place.Host }):
		return "allowed: it is a service of the project", true
	case n.Mode == workorder.NetworkFull:
		return "allowed: the network is full", true
	case n.Mode == workorder.NetworkNone:
		return "refused: the network is none, which no rule changes", false
	case addr.IsValid() && workorder.Undialled(addr) != "":
		return fmt.Sprintf("refused: %s is %s, which no rule can allow", addr, workorder.Undialled(addr)), false
	}
	for _, r := range n.Rules {
		if r.Match(place.Host, port) {
			only := ""
			if _, err := netip.ParseAddr(r.Host); r.Port == 0 && err != nil {
				only = " for TLS and HTTP"
			}
			return fmt.Sprintf("allowed by %s%s", r, only), true
		}
	}
	return fmt.Sprintf("refused: it needs %q under network.allow", Line(workorder.AllowRuleFor(place.Host, port).String())), false
}
