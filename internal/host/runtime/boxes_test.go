package runtime

import "testing"

func TestDefaultRoute(t *testing.T) {
	t.Parallel()
	const table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n" +
		"tun0\t00000000\t010200C0\t0003\t0\t0\t0\t00000080\t0\t0\t0\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	if got := defaultRoute(table); got != "eth0" {
		t.Errorf("default route by %q", got)
	}
	if got := defaultRoute(""); got != "" {
		t.Errorf("no table: %q", got)
	}
}
