package cmdutil

import (
	"fmt"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	const wrong = -2.0
	for kind, rows := range map[string]map[string]float64{
		"memory": {
			"": 0, "none": sandbox.NoLimit, "512m": 512 << 20, "512M": 512 << 20, "1.5g": 3 << 29, "2 G": 2 << 30, "0.5m": 1 << 19,
			"512": wrong, "0x": wrong, "0x10m": wrong, "-1g": wrong, "1t": wrong, "1e3m": wrong, "g": wrong, "1.g": wrong, ".5g": wrong, "infg": wrong, "1g1": wrong,
			"0m": wrong, "0.0g": wrong, "99999999999999999999g": wrong, "None": wrong, " 1g": wrong,
		},
		"cpus": {
			"": 0, "none": sandbox.NoLimit, "2": 2, "0.5": .5, "1.0abc": wrong, "-1": wrong, "0": wrong, "0.0": wrong, "1e3": wrong, "0x1p2": wrong, "inf": wrong, "NaN": wrong,
			"1_0": wrong, " 1": wrong, "99999999": wrong,
		},
		"pids": {"": 0, "none": sandbox.NoLimit, "-1": sandbox.NoLimit, "512": 512, "0": wrong, "-2": wrong, "1.5": wrong, "x": wrong, "+5": wrong, "99999999999": wrong},
	} {
		for text, want := range rows {
			t.Run(fmt.Sprintf("%s %q", kind, text), func(t *testing.T) {
				t.Parallel()
				var got float64
				var err error
				switch kind {
				case "memory":
					var n int64
					n, err = ParseMemory(text)
					got = float64(n)
				case "cpus":
					got, err = ParseCPUs(text)
				default:
					var n int64
					n, err = ParsePIDs(text)
					got = float64(n)
				}
				if (err != nil) != (want == wrong) || err == nil && got != want {
					t.Errorf("%g, %v; want %g", got, err, want)
				}
			})
		}
	}
}
