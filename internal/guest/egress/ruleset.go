package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	tableName = "sandbox_agent"
	// logGroup is the group in which the kernel reports refused packets. Other tools use low numbers.
	logGroup = 5218
	// logRate and logBurst bound the reports, in packets: a flood must not use up the box's CPU.
	logRate, logBurst = 20, 50
	// logBytes is the reported part of a packet: an IPv6 header and ports.
	logBytes = 128
	// engineMark marks connections that the engine opened before Seal, which ends them.
	engineMark = 0x5ea1
	// trustedMark marks connections that boot opened. Without it, a datagram of untrusted code from a port that boot
	// used some seconds ago would belong to boot's connection and leave the box.
	trustedMark = 0x5ea2

	// The log prefixes that tell the reasons.
	prefixMetadata = "metadata"
	prefixPolicy   = "policy"
)

// neighbours are the ICMPv6 messages for neighbour discovery and multicast groups, which only the kernel sends.
const neighbours = "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, " +
	"mld-listener-report, mld-listener-done, mld2-listener-report }"

const (
	trustedOwner = "meta skuid 0 meta skgid 0"
	fromInner    = `meta iifkind "bridge" iifname != @outside`
	toInner      = `meta oifkind "bridge" oifname != @outside`
)

type kernelState struct {
	mode      workorder.NetworkMode
	engineGID uint32
	sealed    bool
	outside   []string       // the interfaces of the box before it created its own, without lo
	own       []netip.Addr   // their addresses
	resolvers []netip.Addr   // of the box's resolv.conf
	inner     []netip.Prefix // of the inner engine
	unlogged  bool           // the kernel has no packet log: refused packets are only counted
	ports     []uint16       // ports named by some rule; nil means all
	dnsPort   uint16         // of the package's resolver; unused in full
	proxyPort uint16         // of the package's proxy; only in restricted
	switched  bool           // another policy was in force: its connections may be open
}

// ruleset returns the input of nft that replaces the whole table. An interface that is neither outside nor a bridge is refused.
func ruleset(s kernelState) string {
	w := &writer{}
	w.line("table inet %s {}", tableName)
	w.line("delete table inet %s", tableName)
	w.open("table inet %s", tableName)
	w.sets(s)
	if s.mode != workorder.NetworkFull {
		w.divert(s)
	}
	w.open("chain leave")
	w.line("type nat hook postrouting priority srcnat; policy accept;")
	w.line("oifname @outside fib saddr type != local masquerade")
	w.close()
	w.input()
	w.output(s)
	w.forward(s)
	w.refuse("refuse_metadata", prefixMetadata, s.unlogged)
	w.refuse("refuse", prefixPolicy, s.unlogged)
	w.close()
	return w.String()
}

type writer struct {
	strings.Builder
	depth int
}

func (w *writer) line(format string, args ...any) {
	w.WriteString(strings.Repeat("\t", w.depth))
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *writer) open(format string, args ...any) {
	w.line(format+" {", args...)
	w.depth++
}

func (w *writer) close() {
	w.depth--
	w.line("}")
}

func (w *writer) set(name, typ string, interval bool, elements []string) {
	w.open("set %s", name)
	w.line("type %s", typ)
	if interval {
		w.line("flags interval")
		w.line("auto-merge")
	}
	if len(elements) > 0 {
		w.line("elements = { %s }", strings.Join(elements, ", "))
	}
	w.close()
}

func (w *writer) addresses(name string, all []netip.Prefix) {
	var v4, v6 []string
	for _, p := range all {
		text := p.String()
		if p.IsSingleIP() {
			text = p.Addr().String()
		}
		if p.Addr().Is4() {
			v4 = append(v4, text)
		} else {
			v6 = append(v6, text)
		}
	}
	w.set(name+"4", "ipv4_addr", true, v4)
	w.set(name+"6", "ipv6_addr", true, v6)
}

func (w *writer) sets(s kernelState) {
	names := make([]string, len(s.outside))
	for i, n := range s.outside {
		names[i] = `"` + n + `"`
	}
	w.set("outside", "ifname", false, names)
	w.addresses("own", singles(s.own))
	w.addresses("inner", s.inner)
	w.addresses("metadata", metadataRanges())
	w.addresses("resolver", singles(s.resolvers))
	w.addresses("loop_resolver", singles(loopResolvers(s.resolvers)))
}

// loopResolvers are resolvers on loopback that an engine provides in user-defined networks. 127.0.0.1 and ::1 stay
// open, because the box's services listen there.
func loopResolvers(all []netip.Addr) []netip.Addr {
	var r []netip.Addr
	for _, a := range all {
		if a.IsLoopback() && a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && a != netip.IPv6Loopback() {
			r = append(r, a)
		}
	}
	return r
}

func singles(all []netip.Addr) []netip.Prefix {
	r := make([]netip.Prefix, 0, len(all))
	for _, a := range all {
		a = a.Unmap().WithZone("")
		r = append(r, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(r, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(r)
}

// both writes a rule for IPv4 and IPv6; %s is replaced by "ip daddr @set4" and so on.
func (w *writer) both(format, set string) {
	w.line(format, "ip daddr @"+set+"4")
	w.line(format, "ip6 daddr @"+set+"6")
}

func (s kernelState) engine() string { return fmt.Sprintf("meta skuid 0 meta skgid %d", s.engineGID) }

const port53 = "meta l4proto { tcp, udp } th dport 53"

// divert sends DNS to the resolver and, in restricted, TCP to the proxy, before the outer engine's own rules.
func (w *writer) divert(s kernelState) {
	proxy := func(match string) {
		if s.mode == workorder.NetworkRestricted {
			// The kernel refuses ports at once that no rule names, so that a client sees no connection.
			ports := "meta l4proto tcp"
			if len(s.ports) > 0 {
				ports = "tcp dport { " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(s.ports), "[]")), ", ") + " }"
			}
			w.line("%s %s redirect to :%d", match, ports, s.proxyPort)
		}
	}
	w.open("chain divert_output")
	w.line("type nat hook output priority dstnat - 10; policy accept;")
	w.line("%s return", trustedOwner)
	if !s.sealed {
		w.line("%s return", s.engine())
	}
	dns := fmt.Sprintf("%s redirect to :%d", port53, s.dnsPort)
	w.both("%s "+dns, "loop_resolver")
	w.line("oifname @outside %s", dns)
	w.both("%s return", "metadata")
	proxy("oifname @outside")
	w.close()

	w.open("chain divert_inner")
	w.line("type nat hook prerouting priority dstnat - 10; policy accept;")
	// If bridges call the firewall, traffic between containers also passes here, so the output interface decides.
	w.line("%s fib daddr oifname @outside %s", fromInner, dns)
	w.both("%s return", "metadata")
	proxy(fromInner + " fib daddr oifname @outside")
	w.close()
}

func (w *writer) input() {
	w.open("chain input")
	w.line("type filter hook input priority filter; policy drop;")
	w.line("ct state established,related accept")
	w.line(`iifname "lo" accept`)
	w.line("%s accept", fromInner)
	w.line("%s accept", neighbours)
	w.close()
}

func (w *writer) output(s kernelState) {
	w.open("chain trusted")
	w.line("ct mark set %#x", trustedMark)
	// Not "any address of the box": an inner network can be given the address of a host that boot talks to.
	w.line("ip daddr 127.0.0.0/8 accept")
	w.line("ip6 daddr ::1 accept")
	w.both("%s accept", "own")
	w.both("%s accept", "inner")
	w.line("oifname @outside accept")
	w.line("meta l4proto tcp reject with tcp reset")
	w.line("reject with icmpx admin-prohibited")
	w.close()

	w.open("chain output")
	w.line("type filter hook output priority filter; policy drop;")
	if s.sealed {
		// Match the direction: the reset itself passes here as a reply.
		w.line("ct mark %#x ct direction original meta l4proto tcp reject with tcp reset", engineMark)
		w.line("ct mark %#x ct direction original drop", engineMark)
	}
	// A packet without a socket matches neither: the kernel's own resets, and unsent data of a closed socket.
	w.line("ct mark %#x ct direction original meta skuid != 0 goto refuse", trustedMark)
	w.line("ct mark %#x ct direction original meta skgid != 0 goto refuse", trustedMark)
	if s.switched && s.mode != workorder.NetworkFull {
		w.line(
			"meta skuid != 0 fib daddr type != local oifname @outside ct state established ct direction original meta l4proto tcp reject " +
				"with tcp reset",
		)
		w.line("meta skuid != 0 fib daddr type != local oifname @outside ct state established ct direction original drop")
	}
	w.line("ct state established,related accept")
	w.line("%s goto trusted", trustedOwner)
	w.line("%s accept", neighbours)
	w.line("meta l4proto igmp drop")
	if !s.sealed {
		w.both(s.engine()+" %s "+port53+" accept", "resolver")
		w.both(s.engine()+" %s accept", "loop_resolver")
	}
	if s.mode == workorder.NetworkFull {
		w.both("%s "+port53+" accept", "resolver")
	} else {
		w.both("%s goto refuse", "loop_resolver")
	}
	w.both("%s goto refuse_metadata", "metadata")
	if !s.sealed {
		w.line("%s oifname @outside ct mark set %#x accept", s.engine(), engineMark)
	}
	// After a redirect the kernel still names the original output interface, so the address decides.
	w.line("fib daddr type local accept")
	w.line(`oifname "lo" accept`)
	w.line("%s accept", toInner)
	if s.mode == workorder.NetworkFull {
		w.line("oifname @outside accept")
	}
	w.line("goto refuse")
	w.close()
}

func (w *writer) forward(s kernelState) {
	w.open("chain forward")
	w.line("type filter hook forward priority filter; policy drop;")
	if s.switched && s.mode != workorder.NetworkFull {
		w.line("%s oifname @outside ct direction original goto refuse", fromInner)
	}
	w.line("ct state established,related accept")
	w.open("%s jump", fromInner)
	w.line("%s accept", toInner)
	if s.mode == workorder.NetworkFull {
		w.both("%s "+port53+" accept", "resolver")
	}
	w.both("%s goto refuse_metadata", "metadata")
	if s.mode == workorder.NetworkFull {
		w.line("oifname @outside accept")
	}
	w.line("goto refuse")
	w.close()
	w.close()
}

func (w *writer) refuse(name, prefix string, unlogged bool) {
	w.open("chain %s", name)
	if unlogged {
		w.line("counter")
	} else {
		w.line("limit rate %d/second burst %d packets log prefix %q group %d snaplen %d", logRate, logBurst, prefix, logGroup, logBytes)
	}
	w.line("meta l4proto tcp reject with tcp reset")
	w.line("reject with icmpx admin-prohibited")
	w.close()
}

// applyTime bounds one change of the rules; the first one can load kernel modules.
const applyTime = 10 * time.Second

// apply replaces the rules in one transaction: either all new ones are in force or all old ones.
func apply(ctx context.Context, rules string) error {
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	_, err := proc.Output(ctx, proc.Spec{Argv: []string{"nft", "-f", "-"}, Stdin: strings.NewReader(rules)})
	if err == nil {
		return nil
	}
	return fmt.Errorf("load the firewall rules: %w: %s", err, applyHint(err))
}

func applyHint(err error) string {
	var exit *proc.ExitError
	switch {
	case !errors.As(err, &exit): // it did not start at all
		return "the image needs the program nft (package nftables): rebuild the image"
	case strings.Contains(exit.Stderr, "not permitted"):
		return "the sandbox needs the capability NET_ADMIN: start it with --cap-add NET_ADMIN"
	}
	return "the kernel needs nf_tables with inet tables, NAT (redirect, masquerade), fib, reject, log and conntrack: " +
		"use a machine whose kernel has them (modules nft_redir, nft_masq, nft_fib_inet, nft_reject_inet, nft_log, nft_ct)"
}
