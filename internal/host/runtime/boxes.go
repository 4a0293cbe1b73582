package runtime

import (
	"context"
	"net"
	"os"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// CacheVolume is the volume shared by all boxes of an engine, unless a user names another; the guest locks what it uses.
const CacheVolume = "sandbox-agent-cache"

const bridgeMTU = 1500 // default of an engine's default network

// OuterMTU returns the MTU of the host's default route if it is smaller than that of a box's interface: behind a tunnel, a
// larger one makes downloads hang. It returns 0 if the MTU is unknown or need not be set.
func OuterMTU(info Info) int {
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

func defaultRoute(table string) string {
	for line := range strings.Lines(table) {
		// Interface, destination, gateway, flags, ..., mask.
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// HostImages returns the ids, by name, of the service images that the engine can pass to the box.
func HostImages(ctx context.Context, engine Runtime, services []workorder.Service) map[string]string {
	ic, ok := engine.(ImageStore)
	if !ok {
		return nil
	}
	have := map[string]string{}
	for i := range services {
		ref := services[i].Image
		// An engine that cannot answer costs the optimisation, not the run.
		if id, err := ic.ImageID(ctx, ref); err == nil && id != "" {
			have[ref] = id
		}
	}
	return have
}
