package egress

import (
	"embed"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

//go:embed testdata/*.nft
var goldens embed.FS // the tests also run where the sources are not

var update = flag.Bool("update", false, "write the golden files")

func TestRuleset(t *testing.T) {
	base := kernelState{
		engineGID: 980, outside: []string{"eth0", "eth1"},
		own:       []netip.Addr{netip.MustParseAddr("172.17.0.2"), netip.MustParseAddr("2001:db8::2")},
		resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("127.0.0.11"), netip.MustParseAddr("169.254.169.253")},
		inner:     []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16")},
		dnsPort:   40053, proxyPort: 40080,
	}
	for name, change := range map[string]func(*kernelState){
		"full":              func(s *kernelState) { s.mode = workorder.NetworkFull },
		"full-sealed":       func(s *kernelState) { s.mode, s.sealed = workorder.NetworkFull, true },
		"restricted":        func(s *kernelState) { s.mode, s.ports = workorder.NetworkRestricted, []uint16{80, 443, 2222} },
		"restricted-sealed": func(s *kernelState) { s.mode, s.sealed = workorder.NetworkRestricted, true },
		"none":              func(s *kernelState) { s.mode = workorder.NetworkNone },
		"none-sealed":       func(s *kernelState) { s.mode, s.sealed = workorder.NetworkNone, true },
		"unlogged":          func(s *kernelState) { s.mode, s.unlogged = workorder.NetworkRestricted, true },
		"no-network": func(s *kernelState) {
			s.mode, s.sealed = workorder.NetworkNone, true
			s.outside, s.own, s.resolvers, s.inner = nil, nil, nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := base
			change(&s)
			got := ruleset(s)
			golden := filepath.Join("testdata", name+".nft")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := goldens.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("run with -update to accept:\n%s", d)
			}
		})
	}
}
