package guard

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// takenByBox are the addresses of the box and its routes, except for those
// on bridges of its own, which the engine manages.
func takenByBox() ([]netip.Prefix, error) {
	own, err := filepath.Glob("/sys/class/net/*/bridge")
	if err != nil {
		return nil, fmt.Errorf("list bridges: %w", err)
	}
	bridge := func(name string) bool {
		return slices.ContainsFunc(own, func(p string) bool { return filepath.Base(filepath.Dir(p)) == name })
	}
	taken, err := routes("/proc/net/route", bridge, routeV4)
	if err != nil {
		return nil, err
	}
	v6, err := routes("/proc/net/ipv6_route", bridge, routeV6)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return nil, err
	}
	taken = append(taken, v6...)
	addrs, err := interfaceAddresses(bridge)
	if err != nil {
		return nil, err
	}
	return append(taken, addrs...), nil
}

func interfaceAddresses(skip func(string) bool) ([]netip.Prefix, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []netip.Prefix
	for _, i := range ifs {
		if skip(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out = append(out, p.Masked())
			}
		}
	}
	return out, nil
}

// routes reads a routing table of the kernel; it skips default routes, which concern no particular address.
func routes(file string, skip func(string) bool, read func([]string) (dev string, p netip.Prefix, err error)) ([]netip.Prefix, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	defer f.Close()
	var out []netip.Prefix
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		dev, p, err := read(fields)
		if err != nil {
			return nil, fmt.Errorf("read routes: %s: %q: %w", file, s.Text(), err)
		}
		if p.Bits() > 0 && !skip(dev) {
			out = append(out, p)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read routes: %s: %w", file, err)
	}
	return out, nil
}

// routeV4 reads "eth0 000011AC 00000000 0001 0 0 0 0000FFFF ...", words in the byte
// order of the machine, which is little-endian on everything the image is built for.
func routeV4(f []string) (string, netip.Prefix, error) {
	dst, err1 := hex.DecodeString(f[1])
	mask, err2 := hex.DecodeString(f[7])
	if err := errors.Join(err1, err2); err != nil || len(dst) != 4 || len(mask) != 4 {
		return "", netip.Prefix{}, errors.Join(err, errors.New("no IPv4 route"))
	}
	slices.Reverse(dst)
	ones := 0
	for _, b := range mask {
		ones += bits.OnesCount8(b)
	}
	return f[0], netip.PrefixFrom(netip.AddrFrom4([4]byte(dst)), ones).Masked(), nil
}

// routeV6 reads "fd00…00 40 … eth0".
func routeV6(f []string) (string, netip.Prefix, error) {
	dst, err1 := hex.DecodeString(f[0])
	ones, err2 := hex.DecodeString(f[1])
	if err := errors.Join(err1, err2); err != nil || len(dst) != 16 || len(ones) != 1 {
		return "", netip.Prefix{}, errors.Join(err, errors.New("no IPv6 route"))
	}
	return f[len(f)-1], netip.PrefixFrom(netip.AddrFrom16([16]byte(dst)), int(ones[0])).Masked(), nil
}
