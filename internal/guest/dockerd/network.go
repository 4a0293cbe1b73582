package dockerd

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

type route struct {
	device string
	prefix netip.Prefix
}

// routes reads the IPv4 routing table of the box.
func (s system) routes() ([]route, error) {
	b, err := os.ReadFile(s.path("/proc/net/route"))
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var all []route
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == "Iface" {
			continue
		}
		dst, err1 := hexAddr(f[1])
		mask, err2 := hexAddr(f[7])
		if err1 != nil || err2 != nil {
			continue
		}
		m := mask.As4()
		ones, _ := net.IPMask(m[:]).Size()
		all = append(all, route{device: f[0], prefix: netip.PrefixFrom(dst, ones)})
	}
	return all, nil
}

func hexAddr(s string) (netip.Addr, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 {
		return netip.Addr{}, fmt.Errorf("%q is not an address", s)
	}
	var a [4]byte
	// The kernel prints the address as a number in its own byte order.
	binary.BigEndian.PutUint32(a[:], binary.NativeEndian.Uint32(b))
	return netip.AddrFrom4(a), nil
}

// addresses are the ranges of the inner engine.
type addresses struct {
	all    netip.Prefix // everything below
	bridge netip.Prefix // docker0, with the gateway's address
	pool   netip.Prefix // networks created later, /24 each
}

// chooseAddresses picks ranges that hide no address the box can reach: never 172.16/12 and 192.168/16, which engines
// and offices use, nor 198.18.0.0/15, which the network policy uses for names.
func chooseAddresses(taken []netip.Prefix) (addresses, error) {
	var candidates []netip.Prefix
	for i := range 40 {
		candidates = append(candidates, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(213 + i), 0, 0}), 16))
	}
	for _, second := range []byte{126, 127} { // the end of the range for carriers: for sites that route all of 10/8
		candidates = append(candidates, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, second, 0, 0}), 16))
	}
	for _, c := range candidates {
		free := true
		for _, t := range taken {
			free = free && (t.Bits() <= 0 || !t.Overlaps(c))
		}
		if !free {
			continue
		}
		a := c.Addr().As4()
		return addresses{
			all:    c,
			bridge: netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], 0, 1}), 24),
			pool:   netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], 128, 0}), 17),
		}, nil
	}
	return addresses{}, errors.New("every address range for the inner engine is routed elsewhere: remove a route of the sandbox")
}

// mtu returns the MTU of the interface with the default route; 0 if there is none.
func (s system) mtu(routes []route) int {
	for _, r := range routes {
		if r.prefix.Bits() != 0 {
			continue
		}
		b, err := os.ReadFile(s.path("/sys/class/net/" + r.device + "/mtu"))
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n
	}
	return 0
}

// forward lets the kernel route for inner containers.
func (s system) forward() error {
	p := s.path("/proc/sys/net/ipv4/ip_forward")
	if b, err := os.ReadFile(p); err == nil && strings.TrimSpace(string(b)) == "1" {
		return nil
	}
	if err := os.WriteFile(p, []byte("1"), 0); err != nil {
		return fmt.Errorf("switch on forwarding: %w: start the sandbox with --security-opt systempaths=unconfined", err)
	}
	return nil
}
