package workorder

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// NetworkMode is the outbound network mode of the box. It applies to the agent, all commands of the project and inner
// containers. Boot itself (git, the model gateway, packages, images of declared services) is exempt.
type NetworkMode string

// Network modes. All of them block the metadata services of clouds and inbound connections.
const (
	NetworkFull       NetworkMode = "full"       // everything
	NetworkRestricted NetworkMode = "restricted" // the hosts in Allow, by name
	NetworkNone       NetworkMode = "none"       // the box itself, its services and the gateway
)

// NetworkModes returns all modes.
func NetworkModes() []NetworkMode { return []NetworkMode{NetworkFull, NetworkRestricted, NetworkNone} }

// NetworkPolicy is the outbound network policy of the box.
type NetworkPolicy struct {
	Mode  NetworkMode `json:"mode"`
	Allow []string    `json:"allow,omitempty"` // has the rules of NetworkRestricted, see ParseAllowRule
	// Learn, only with NetworkRestricted, allows every host with a name and reports what would be refused.
	Learn bool     `json:"learn,omitempty"`
	DNS   []string `json:"dns,omitempty"` // the addresses of the box's resolvers; empty means the engine's
}

// AllowRule is a parsed rule of Network.Allow.
type AllowRule struct {
	Host string // a name in lower-case ASCII without a trailing dot, or a canonical address
	Sub  bool   // means Host's subdomains at any depth, but not Host itself
	Port uint16 // 0 for the web ports 80 and 443
	// Private allows the name to resolve to addresses of private networks.
	Private bool
}

// private is the suffix of a rule with Private.
const private = "@private"

// PrivateRanges returns the address ranges of private networks. An untrusted DNS answer could direct the box into them.
func PrivateRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), // RFC 1918
		netip.MustParsePrefix("100.64.0.0/10"),  // carriers and overlay networks (RFC 6598)
		netip.MustParsePrefix("192.0.0.0/24"),   // protocols (RFC 6890)
		netip.MustParsePrefix("240.0.0.0/4"),    // reserved, but routed by some
		netip.MustParsePrefix("fc00::/7"),       // RFC 4193
		netip.MustParsePrefix("fec0::/10"),      // site-local (RFC 3879)
		netip.MustParsePrefix("64:ff9b:1::/48"), // local translation to IPv4 (RFC 8215)
		netip.MustParsePrefix("2002::/16"),      // 6to4: any IPv4 address behind it
	}
}

// PrivateAddress reports whether an address is in one of PrivateRanges.
func PrivateAddress(a netip.Addr) bool {
	a = Untranslated(a)
	return slices.ContainsFunc(PrivateRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// Untranslated returns the IPv4 address behind an address of NAT64 (RFC 6052), and other addresses without a zone.
func Untranslated(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if b := a.As16(); netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// Metadata returns the ranges that no rule can allow: metadata services of clouds, which hand out the machine's credentials.
func Metadata() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"),      // link-local: AWS, Azure, GCP, OpenStack, ECS
		netip.MustParsePrefix("100.100.100.200/32"),  // Alibaba
		netip.MustParsePrefix("168.63.129.16/32"),    // Azure's host
		netip.MustParsePrefix("192.0.0.192/32"),      // Oracle
		netip.MustParsePrefix("fd00:ec2::254/128"),   // AWS
		netip.MustParsePrefix("fd20:ce::254/128"),    // GCP
		netip.MustParsePrefix("fe80::a9fe:a9fe/128"), // OpenStack
	}
}

// IsMetadata reports whether an address is in one of the ranges of Metadata, or link-local, also behind NAT64.
func IsMetadata(a netip.Addr) bool {
	a = Untranslated(a)
	return a.IsLinkLocalUnicast() || slices.ContainsFunc(Metadata(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// NameRange returns the range of the addresses that represent names in a restricted box: reserved for network
// benchmarks (RFC 2544), not routed.
func NameRange() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 15) }

// Undialled returns why an address is never dialled outside of a box, whatever the rules; "" for any other. It does not cover Metadata.
func Undialled(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "not an address of a host"
	case a.IsLoopback():
		return "the sandbox itself"
	case a.IsMulticast(), a.IsLinkLocalUnicast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast, broadcast or link-local address"
	case NameRange().Contains(a):
		return "the range that represents names in the sandbox"
	}
	return ""
}

// ParseAllowRule parses a rule: "name", "*.domain" or "address", each optionally with ":port"; an IPv6 address with a
// port is in brackets. A final "@private" allows the name to resolve to addresses of private networks. A name is ASCII,
// an internationalised one in its xn-- form.
func ParseAllowRule(s string) (AllowRule, error) {
	bad := func(why string) (AllowRule, error) { return AllowRule{}, fmt.Errorf("allow rule %q: %s", s, why) }
	place, inside := strings.CutSuffix(s, private)
	host, port, err := splitPort(place)
	if err != nil {
		return bad(err.Error())
	}
	r := AllowRule{Port: port, Private: inside}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return bad("use an address without a zone")
		}
		if inside {
			return bad("addresses do not need " + private + ": remove it")
		}
		a = a.Unmap()
		for _, p := range Metadata() {
			if p.Contains(a) {
				return bad("this is a cloud's metadata service with the machine's credentials; it cannot be allowed")
			}
		}
		if why := Undialled(a); why != "" {
			return bad("this is " + why + "; rules do not apply to it")
		}
		r.Host = a.String()
		return r, nil
	}
	host, r.Sub = strings.CutPrefix(host, "*.")
	r.Host = CanonicalHost(host)
	_, notRange := netip.ParsePrefix(host)
	switch {
	case notRange == nil:
		return bad("address ranges are not supported: use names or single addresses")
	case strings.ContainsAny(host, "/@?#"):
		return bad("use a host name, not a URL")
	case strings.Contains(host, "*"):
		return bad("use * only for all subdomains, as in *.example.com")
	case !ValidHostName(r.Host):
		return bad("this is not a host name")
	case r.Sub && !strings.Contains(r.Host, "."):
		return bad("this would allow a whole top-level domain")
	case strings.Trim(r.Host[strings.LastIndex(r.Host, ".")+1:], "0123456789") == "":
		return bad("this is neither an address nor a name")
	}
	return r, nil
}

func splitPort(s string) (host string, port uint16, err error) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		addr, after, ok := strings.Cut(rest, "]")
		if !ok {
			return "", 0, errors.New("[ without ]")
		}
		if after == "" {
			return addr, 0, nil
		}
		if s, ok = strings.CutPrefix(after, ":"); !ok {
			return "", 0, errors.New("use :port after ]")
		}
		host, s = addr, ":"+s
	} else if strings.Count(s, ":") > 1 { // a bare IPv6 address
		return s, 0, nil
	}
	h, p, ok := strings.Cut(s, ":")
	host = cmp.Or(host, h)
	if !ok {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || p[0] == '0' || p[0] == '+' {
		return "", 0, fmt.Errorf("%q is not a port from 1 to 65535", p)
	}
	return host, uint16(n), nil
}

// CanonicalHost returns a host name as rules compare it: lower-case ASCII without a final dot.
func CanonicalHost(s string) string {
	b := []byte(strings.TrimSuffix(s, "."))
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// ValidHostName reports whether a canonical name is valid in the DNS: labels of letters, digits, - and _ of at most 63
// bytes, at most 253 bytes in total.
func ValidHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// webPorts are allowed by a rule without a port.
var webPorts = []uint16{80, 443}

// Names reports whether the rule has this canonical name or address, whatever the port.
func (r AllowRule) Names(host string) bool {
	if r.Sub {
		return strings.HasSuffix(host, "."+r.Host)
	}
	return host == r.Host
}

// Match reports whether the rule allows a canonical name or address at a port.
func (r AllowRule) Match(host string, port uint16) bool {
	if !r.Names(host) {
		return false
	}
	return port == r.Port || r.Port == 0 && slices.Contains(webPorts, port)
}

// String returns the rule as written in a project file.
func (r AllowRule) String() string {
	s := r.Host
	if r.Sub {
		s = "*." + s
	}
	if r.Port != 0 {
		if strings.Contains(s, ":") {
			s = "[" + s + "]"
		}
		s += ":" + strconv.Itoa(int(r.Port))
	}
	if r.Private {
		s += private
	}
	return s
}

// plainInYAML matches rules that YAML reads as text without quotes: a name with a dot whose last part begins with a
// letter, and an IPv4 address.
var plainInYAML = lazyregexp.New(`^([a-z][a-z0-9-]*(\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*|[0-9]+(\.[0-9]+){3})(:[0-9]+)?(@private)?$`)

// Line returns the rule as a YAML item of network.allow, quoted if necessary.
func (r AllowRule) Line() string {
	s := r.String()
	if plainInYAML.MatchString(s) {
		return "- " + s
	}
	return "- '" + s + "'"
}

// AllowRuleFor returns the smallest rule that allows a canonical name or address at a port.
func AllowRuleFor(host string, port uint16) AllowRule {
	r := AllowRule{Host: host, Port: port}
	if slices.Contains(webPorts, port) {
		r.Port = 0
	}
	return r
}

// Check validates a policy. Its error has all mistakes.
func (n *NetworkPolicy) Check() error {
	var p problems
	n.check(&p)
	return errors.Join(p.errs...)
}

func (n *NetworkPolicy) check(p *problems) {
	p.require(slices.Contains(NetworkModes(), n.Mode), "network %q is unknown (known: %v)", n.Mode, NetworkModes())
	p.require(n.Mode == NetworkRestricted || len(n.Allow) == 0 && !n.Learn, "network: allow and learn are only for %s", NetworkRestricted)
	for _, s := range n.Allow {
		if _, err := ParseAllowRule(s); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	for _, s := range n.DNS {
		_, err := netip.ParseAddr(s)
		p.require(err == nil, "network: dns %q is not an address", s)
	}
}

// NetworkReport lists the box's attempts to reach outside hosts.
type NetworkReport struct {
	Mode NetworkMode `json:"mode"`
	// Hosts lists reached and refused hosts, the most frequent first. With NetworkFull only refused ones are known.
	Hosts []NetworkHost `json:"hosts"`
}

// NetworkStatus is the outcome of attempts to reach a host.
type NetworkStatus string

// Values of NetworkStatus.
const (
	NetworkAllowed NetworkStatus = "allowed"
	NetworkRefused NetworkStatus = "refused"
	NetworkLearned NetworkStatus = "learned" // not refused because of Network.Learn
)

// NetworkHost is a host that the box tried to reach.
type NetworkHost struct {
	// Host is a name if known, otherwise an address. Port is 0 for a name that was only resolved, and for protocols without ports.
	Host     string        `json:"host"`
	Port     uint16        `json:"port"`
	Protocol string        `json:"protocol"` // tcp, udp, dns, icmp, or a number
	Status   NetworkStatus `json:"status"`
	// Count is the number of attempts. It is a lower bound for packets that the kernel refused (other than TCP, and
	// ports of addresses), since the kernel reports some 20 a second.
	Count int64    `json:"count"`
	By    []string `json:"by"` // the first processes and containers that tried
	// Reason is why it was refused. Rule is the line for network.allow that would allow it, empty if none can. For an
	// allowed host, Rule is set if it says more than host and port.
	Reason string `json:"reason"`
	Rule   string `json:"rule"`
}
