package workorder

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// NetworkMode is the outbound network policy of the box. It holds for the agent,
// for every command of the project and for inner containers alike; boot itself
// (git, the model gateway, packages, images of declared services) is not subject to it.
type NetworkMode string

// The network policies. In all of them the metadata services of clouds are out of
// reach, and nobody outside reaches a port of the box.
const (
	NetworkFull       NetworkMode = "full"       // everything
	NetworkRestricted NetworkMode = "restricted" // what Allow names, by name
	NetworkNone       NetworkMode = "none"       // only the box itself, its services and the gateway
)

// NetworkModes lists the policies.
func NetworkModes() []NetworkMode { return []NetworkMode{NetworkFull, NetworkRestricted, NetworkNone} }

// Network is the outbound policy of the box.
type Network struct {
	Mode NetworkMode `json:"mode"`
	// Allow are the rules of NetworkRestricted, see ParseAllowRule.
	Allow []string `json:"allow,omitempty"`
	// Learn, only with NetworkRestricted, refuses nothing that has a name, and reports
	// what would have been refused.
	Learn bool `json:"learn,omitempty"`
	// DNS are the addresses of the resolvers that the box asks; empty means the engine's.
	DNS []string `json:"dns,omitempty"`
}

// AllowRule is a parsed rule of Network.Allow.
type AllowRule struct {
	// Host is a name in lower-case ASCII without a trailing dot, or an address in its
	// canonical form.
	Host string
	// Sub: Host's subdomains, at any depth, and not Host itself.
	Sub bool
	// Port is 0 for the ports of the web, 80 and 443.
	Port uint16
	// Private: the name may resolve to addresses of private networks.
	Private bool
}

// private ends a rule whose name may resolve to private addresses.
const private = "@private"

// PrivateRanges are those that only lead to a network of somebody's own: to one that whoever answers for a name
// could send the box into.
func PrivateRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), // RFC 1918
		netip.MustParsePrefix("100.64.0.0/10"),  // of carriers, and of overlay networks (RFC 6598)
		netip.MustParsePrefix("192.0.0.0/24"),   // of protocols (RFC 6890)
		netip.MustParsePrefix("240.0.0.0/4"),    // reserved, which some route
		netip.MustParsePrefix("fc00::/7"),       // RFC 4193
		netip.MustParsePrefix("fec0::/10"),      // site-local (RFC 3879)
		netip.MustParsePrefix("64:ff9b:1::/48"), // translation of one's own to IPv4 (RFC 8215)
		netip.MustParsePrefix("2002::/16"),      // 6to4: any IPv4 address behind it
	}
}

// PrivateAddress reports whether an address is in one of PrivateRanges.
func PrivateAddress(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if b := a.As16(); netip.MustParsePrefix("64:ff9b::/96").Contains(a) { // translated by whoever does that (RFC 6052)
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return slices.ContainsFunc(PrivateRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// Metadata are the ranges of which no rule can allow anything: metadata services
// of clouds, which hand out the machine's own credentials.
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

// NameRange is the range of the addresses that stand for names in a restricted box: reserved for benchmarks of
// networks (RFC 2544), routed nowhere.
func NameRange() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), 15) }

// Undialled says why an address is never connected to outside of a box, whatever the rules
// say; "" for any other. Those of Metadata are not among them.
func Undialled(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "no address of a host"
	case a.IsLoopback():
		return "the sandbox itself"
	case a.IsMulticast(), a.IsLinkLocalUnicast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "no address beyond the local link"
	case NameRange().Contains(a):
		return "the range that stands for names in the sandbox"
	}
	return ""
}

// ParseAllowRule reads a rule: "name", "*.domain", "address", each optionally with
// ":port"; an IPv6 address with a port is in brackets. "@private" behind a name lets it resolve to addresses of
// private networks. A name is ASCII; an internationalised one is given in its xn-- form.
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
			return bad("an address has no zone")
		}
		if inside {
			return bad("an address is allowed as it stands: leave " + private + " out")
		}
		a = a.Unmap()
		for _, p := range Metadata() {
			if p.Contains(a) {
				return bad("this is where clouds keep the machine's own credentials; it can never be allowed")
			}
		}
		if why := Undialled(a); why != "" {
			return bad("this is " + why + "; no rule changes what can be reached there")
		}
		r.Host = a.String()
		return r, nil
	}
	host, r.Sub = strings.CutPrefix(host, "*.")
	r.Host = CanonicalHost(host)
	_, notRange := netip.ParsePrefix(host)
	switch {
	case notRange == nil:
		return bad("ranges of addresses cannot be allowed: give the single addresses, or better names")
	case strings.ContainsAny(host, "/@?#"):
		return bad("give a host name, not a URL")
	case strings.Contains(host, "*"):
		return bad("* stands only for all subdomains, as in *.example.com")
	case !ValidHostName(r.Host):
		return bad("this is no host name")
	case r.Sub && !strings.Contains(r.Host, "."):
		return bad("this would allow a whole top-level domain")
	case strings.Trim(r.Host[strings.LastIndex(r.Host, ".")+1:], "0123456789") == "":
		return bad("this is no address and no name")
	}
	return r, nil
}

func splitPort(s string) (host string, port uint16, err error) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		addr, after, ok := strings.Cut(rest, "]")
		if !ok {
			return "", 0, errors.New("a [ without its ]")
		}
		if after == "" {
			return addr, 0, nil
		}
		if s, ok = strings.CutPrefix(after, ":"); !ok {
			return "", 0, errors.New("after ] comes :port")
		}
		host, s = addr, ":"+s
	} else if strings.Count(s, ":") > 1 { // a bare IPv6 address
		return s, 0, nil
	}
	h, p, ok := strings.Cut(s, ":")
	if host == "" {
		host = h
	}
	if !ok {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || p[0] == '0' || p[0] == '+' {
		return "", 0, fmt.Errorf("%q is not a port from 1 to 65535", p)
	}
	return host, uint16(n), nil
}

// CanonicalHost is a host name as rules compare it: ASCII lower case, without the
// dot of the root.
func CanonicalHost(s string) string {
	b := []byte(strings.TrimSuffix(s, "."))
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// ValidHostName reports whether a canonical name can be one of the DNS: labels of
// letters, digits, - and _, 63 bytes each, 253 in all.
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

// webPorts are what a rule without a port allows.
var webPorts = []uint16{80, 443}

// Names reports whether the rule is about this canonical name or address, whatever the port.
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

// String is the rule as it is written in a project file.
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

// plainInYAML are rules that YAML reads as text as they stand: a name with a dot whose last part begins with a letter,
// and an IPv4 address.
var plainInYAML = regexp.MustCompile(`^([a-z][a-z0-9-]*(\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*|[0-9]+(\.[0-9]+){3})(:[0-9]+)?(@private)?$`)

// Line is the rule as an item of the list network.allow in YAML, quoted where YAML would
// read it as something other than text.
func (r AllowRule) Line() string {
	s := r.String()
	if plainInYAML.MatchString(s) {
		return "- " + s
	}
	return "- '" + s + "'"
}

// AllowRuleFor is the smallest rule that allows a canonical name or address at a port.
func AllowRuleFor(host string, port uint16) AllowRule {
	r := AllowRule{Host: host, Port: port}
	if slices.Contains(webPorts, port) {
		r.Port = 0
	}
	return r
}

// Check returns all that is wrong with a policy.
func (n *Network) Check() error {
	var c check
	n.check(&c)
	return errors.Join(c.errs...)
}

func (n *Network) check(c *check) {
	c.that(slices.Contains(NetworkModes(), n.Mode), "network %q is not known (known: %v)", n.Mode, NetworkModes())
	c.that(n.Mode == NetworkRestricted || len(n.Allow) == 0 && !n.Learn, "network: allow and learn are only for %s", NetworkRestricted)
	for _, s := range n.Allow {
		if _, err := ParseAllowRule(s); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	for _, s := range n.DNS {
		_, err := netip.ParseAddr(s)
		c.that(err == nil, "network: dns %q is not an address", s)
	}
}

// NetworkReport says in the result what the box reached for outside.
type NetworkReport struct {
	Mode NetworkMode `json:"mode"`
	// Hosts lists what was reached or refused, the most frequent first; of NetworkFull only
	// what was refused is known.
	Hosts []NetworkHost `json:"hosts"`
}

// NetworkStatus says what became of the attempts to reach a host.
type NetworkStatus string

// An attempt can end in these ways.
const (
	NetworkAllowed NetworkStatus = "allowed"
	NetworkRefused NetworkStatus = "refused"
	NetworkLearned NetworkStatus = "learned" // not refused because of Network.Learn
)

// NetworkHost is one place that was reached for.
type NetworkHost struct {
	// Host is a name where one is known, else an address; Port is 0 for a name that was
	// only asked for, and for protocols without ports.
	Host     string        `json:"host"`
	Port     uint16        `json:"port"`
	Protocol string        `json:"protocol"` // tcp, udp, dns, icmp, or a number
	Status   NetworkStatus `json:"status"`
	// Count is of attempts; of what the kernel itself refused (what is not TCP, and ports of
	// addresses) it has at least so many, since it reports some 20 a second.
	Count int64 `json:"count"`
	// By are the first processes and containers that tried.
	By []string `json:"by"`
	// Reason says why it was refused; Rule is the line under network.allow that would allow
	// it, empty when none can. Of what was allowed, Rule is a line that says more than host and port.
	Reason string `json:"reason"`
	Rule   string `json:"rule"`
}
