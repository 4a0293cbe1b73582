package connowner

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func addrPort(t *testing.T, a net.Addr) netip.AddrPort {
	t.Helper()
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConnectionsOfThisProcess(t *testing.T) {
	want := fmt.Sprintf("(pid %d)", os.Getpid())
	for _, network := range []string{"tcp4", "tcp6"} {
		host := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network]
		l, err := (&net.ListenConfig{}).Listen(t.Context(), network, host)
		if err != nil {
			t.Logf("%s: %v", network, err)
			if network == "tcp6" {
				continue // a machine without IPv6
			}
			t.FailNow()
		}
		defer l.Close()
		c, err := (&net.Dialer{}).DialContext(t.Context(), network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f := New(nil, nil)
		for range 2 { // searched, then remembered
			got := f.TCP(addrPort(t, c.LocalAddr()), addrPort(t, c.RemoteAddr()))
			if !strings.HasSuffix(got, want) {
				t.Errorf("%s: %q, want …%s", network, got, want)
			}
		}
		if got := f.TCP(addrPort(t, c.LocalAddr()), netip.MustParseAddrPort("192.0.2.1:1")); got != "" {
			t.Errorf("another remote: %q", got)
		}
	}
	u, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	local := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), addrPort(t, u.LocalAddr()).Port())
	if got := New(nil, nil).UDP(local); !strings.HasSuffix(got, want) {
		t.Errorf("udp: %q", got)
	}
}

func TestContainers(t *testing.T) {
	id := strings.Repeat("0a", 32)
	outer := strings.Repeat("ff", 32)
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("7/comm", "cu\x1b[31mrl\n")
	write("7/cgroup", "12:pids:/docker/"+outer+"/docker/"+id+"\n0::/\n")
	write("8/comm", "sh\n")
	write("8/cgroup", "0::/docker/"+outer+"\n")
	f := New(func(_ context.Context, got string) string {
		if got == id {
			return "redis"
		}
		return ""
	}, func(_ context.Context, ip netip.Addr) string {
		if ip.String() == "10.213.0.2" {
			return "web\n"
		}
		return ""
	})
	f.proc = root
	for pid, want := range map[int]string{7: "container redis: cu?[31mrl", 8: "sh (pid 8)", 9: "pid 9"} {
		if got := f.Process(pid); got != want {
			t.Errorf("%d: %q, want %q", pid, got, want)
		}
	}
	for ip, want := range map[string]string{"10.213.0.2": "container web?", "10.213.0.3": "container at 10.213.0.3"} {
		if got := f.TCP(netip.AddrPortFrom(netip.MustParseAddr(ip), 5), netip.MustParseAddrPort("192.0.2.1:1")); got != want {
			t.Errorf("%s: %q, want %q", ip, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"": "?", "a b": "a b", "a\x00\r\nb": "a???b", "\xff": "?", "\u202eevil": "?evil", strings.Repeat("x", 99): strings.Repeat("x", maxName),
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
