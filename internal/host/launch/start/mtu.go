package start

import (
	"net"
	"os"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// bridgeMTU is the default of an engine's default network.
const bridgeMTU = 1500

// OuterMTU is the MTU on the box's way out, if it is smaller than that of the box's own
// interface: behind a tunnel the larger one makes downloads hang. It is 0 if nothing is
// known or nothing must be set.
func OuterMTU(info runtime.Info) int {
	if !info.Local {
		return 0
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return 0
	}
	i, err := net.InterfaceByName(defaultRoute(string(routes)))
	if err != nil || i.MTU >= bridgeMTU {
		return 0
	}
	return i.MTU
}

// defaultRoute is the interface of the default route in the kernel's table.
func defaultRoute(table string) string {
	for line := range strings.Lines(table) {
		// Interface, destination, gateway, flags, ..., mask.
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}
