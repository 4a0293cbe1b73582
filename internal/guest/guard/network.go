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
	"strconv"
	"strings"
)

// privateRanges are the allowed ranges for networks of containers.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

var networkBody = object(map[string]check{
	"Name": text(networkName), "CheckDuplicate": nil, "EnableIPv4": nil, "EnableIPv6": nil, "Internal": nil, "Attachable": nil, "Labels": nil,
	"Driver":     text(networkDriver),
	"Scope":      oneOf(ruleSwarm, "", "local"),
	"Ingress":    unset(ruleSwarm),
	"ConfigOnly": unset(ruleNetworkOption),
	"ConfigFrom": object(map[string]check{"Network": unset(ruleNetworkOption)}),
	"Options":    mapOf(networkOption),
	"IPAM": object(map[string]check{
		"Driver": oneOf(ruleNetworkDriver, "", "default"), "Options": unset(ruleNetworkOption), "Config": listOf(subnetOf),
	}),
})

var connectBody = object(map[string]check{"Container": nil, "EndpointConfig": endpointBody})

var disconnectBody = object(map[string]check{"Container": nil, "Force": nil})

func networkName(_ *judge, at, s string) (string, error) {
	if isHost(s) {
		return "", refuse(ruleNetworkHost, "%s %q is not possible in a sandbox", at, s)
	}
	return s, nil
}

func networkDriver(_ *judge, at, s string) (string, error) {
	switch {
	case isHost(s):
		return "", refuse(ruleNetworkHost, "%s %q is not possible in a sandbox", at, s)
	case !slices.Contains([]string{"", "bridge", "null", "none"}, s):
		return "", refuse(ruleNetworkDriver, "%s %q is not possible in a sandbox", at, s)
	}
	return s, nil
}

// networkOption allows options of the bridge driver that stay on the bridge.
func networkOption(_ *judge, at, key string, v any) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, refuse(ruleBody, "%s.%s must be a string", at, key)
	}
	switch key {
	case "com.docker.network.driver.mtu":
		_, err := strconv.ParseUint(s, 10, 16)
		ok = err == nil
	case "com.docker.network.bridge.enable_icc", "com.docker.network.bridge.enable_ip_masquerade",
		"com.docker.network.enable_ipv4", "com.docker.network.enable_ipv6":
		_, err := strconv.ParseBool(s)
		ok = err == nil
	case "com.docker.network.bridge.host_binding_ipv4":
		a, err := netip.ParseAddr(s)
		ok = err == nil && (a.IsLoopback() || a.IsUnspecified())
	case "com.docker.network.bridge.gateway_mode_ipv4", "com.docker.network.bridge.gateway_mode_ipv6":
		ok = s == "nat" || s == "isolated"
	case "com.docker.network.container_iface_prefix":
		ok = s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
	default:
		ok = false
	}
	if !ok {
		return nil, refuse(ruleNetworkOption, "the network option %s=%s is not possible in a sandbox", key, s)
	}
	return s, nil
}

func endpointFields() map[string]check {
	return map[string]check{
		"IPAMConfig": object(map[string]check{
			"IPv4Address": nil, "IPv6Address": nil, // the engine checks that they are in the network's subnet
			"LinkLocalIPs": unset(ruleNetworkSubnet), // metadata services of clouds use them
		}),
		"Links": nil, "Aliases": nil, "MacAddress": nil, "GwPriority": nil,
		"DriverOpts": mapOf(endpointOption),
		// Clients send back fields that an inspection showed; the engine sets them itself.
		"NetworkID": nil, "EndpointID": nil, "Gateway": nil, "IPAddress": nil, "IPPrefixLen": nil, "IPv6Gateway": nil,
		"GlobalIPv6Address": nil, "GlobalIPv6PrefixLen": nil, "DNSNames": nil,
	}
}

func endpointOf(j *judge, at, key string, v any) (any, error) {
	if isHost(key) {
		return nil, refuse(ruleNetworkHost, "%s %q is not possible in a sandbox", at, key)
	}
	if v == nil {
		return v, nil // means an endpoint without settings
	}
	return endpointBody(j, at+"."+key, v)
}

func endpointOption(_ *judge, _, key string, v any) (any, error) {
	// Both are applied inside of the container's network namespace.
	if !slices.Contains([]string{"com.docker.network.endpoint.sysctls", "com.docker.network.endpoint.ifname"}, key) {
		return nil, refuse(ruleNetworkOption, "the endpoint option %q is not possible in a sandbox", key)
	}
	return v, nil
}

var subnetFields = object(map[string]check{
	"Subnet": text(plainText), "IPRange": text(plainText), "Gateway": text(plainText),
	"AuxiliaryAddresses": mapOf(func(_ *judge, _, _ string, v any) (any, error) { return v, nil }),
})

func subnetOf(j *judge, at string, v any) (any, error) {
	v, err := subnetFields(j, at, v)
	if err != nil {
		return nil, err
	}
	m, _ := v.(map[string]any)
	s, _ := m["Subnet"].(string)
	if s == "" {
		for _, k := range []string{"IPRange", "Gateway", "AuxiliaryAddresses"} {
			if !empty(m[k]) {
				return nil, refuse(ruleNetworkSubnet, "%s.%s needs a subnet", at, k)
			}
		}
		return m, nil
	}
	subnet, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, refuse(ruleNetworkSubnet, "%s.Subnet %q is not a subnet", at, s)
	}
	if err := j.subnet(subnet.Masked()); err != nil {
		return nil, err
	}
	m["Subnet"] = subnet.String()
	if s, _ := m["IPRange"].(string); s != "" {
		r, err := netip.ParsePrefix(s)
		if err != nil || r.Bits() < subnet.Bits() || !subnet.Contains(r.Addr()) {
			return nil, refuse(ruleNetworkSubnet, "%s.IPRange %q is not a part of %s", at, s, subnet)
		}
	}
	inside := func(what string, v any) error {
		s, ok := v.(string)
		if a, err := netip.ParseAddr(s); !ok || s != "" && (err != nil || !subnet.Contains(a)) {
			return refuse(ruleNetworkSubnet, "%s %q is not an address of %s", what, v, subnet)
		}
		return nil
	}
	if gw, ok := m["Gateway"]; ok {
		if err := inside(at+".Gateway", gw); err != nil {
			return nil, err
		}
	}
	aux, _ := m["AuxiliaryAddresses"].(map[string]any)
	for k, v := range aux {
		if err := inside(at+".AuxiliaryAddresses."+k, v); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// subnet refuses ranges that are not private, and those that the box itself uses.
func (j *judge) subnet(p netip.Prefix) error {
	if !slices.ContainsFunc(privateRanges, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) }) {
		return refuse(ruleNetworkSubnet, "the subnet %s is not in a private range", p)
	}
	taken, err := j.g.taken()
	if err != nil {
		return refuse(ruleNetworkSubnet, "the addresses hidden by the subnet %s cannot be determined (%v)", p, err)
	}
	for _, t := range taken {
		if t.Overlaps(p) {
			return refuse(ruleNetworkSubnet, "the subnet %s has addresses of %s, which the sandbox needs itself", p, t)
		}
	}
	return nil
}

// takenByBox are the addresses of the box and its routes, except for those on its own bridges.
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

// routeV4 reads "eth0 000011AC 00000000 0001 0 0 0 0000FFFF ...", words in little-endian byte order.
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
