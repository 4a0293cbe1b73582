package netrules

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestAllows has a row for each reason.
func TestAllows(t *testing.T) {
	t.Parallel()
	rule := func(host string, port uint16) workorder.AllowRule { return workorder.AllowRule{Host: host, Port: port} }
	restricted := Policy{
		Mode: workorder.NetworkRestricted, Services: []workorder.Service{{Name: "db"}},
		Rules: []workorder.AllowRule{rule("api.example.com", 8443), rule("example.org", 0), rule("192.0.2.7", 5432), rule("10.0.0.1", 0)},
	}
	for name, c := range map[string]struct {
		network Policy
		place   workorder.AllowRule
		want    bool
	}{
		"metadata, whatever the network": {Policy{Mode: workorder.NetworkFull}, rule("169.254.169.254", 80), false},
		"the box itself":                 {Policy{Mode: workorder.NetworkNone}, rule("localhost", 80), true},
		"loopback":                       {Policy{Mode: workorder.NetworkNone}, rule("127.0.0.1", 80), true},
		"a service":                      {restricted, rule("db", 5432), true},
		"full":                           {Policy{Mode: workorder.NetworkFull}, rule("example.net", 0), true},
		"none":                           {Policy{Mode: workorder.NetworkNone, Rules: restricted.Rules}, rule("example.org", 0), false},
		"no rule can allow it":           {restricted, rule("0.0.0.0", 80), false},
		"a rule":                         {restricted, rule("example.org", 0), true},
		"a rule with a port":             {restricted, rule("api.example.com", 8443), true},
		"another port":                   {restricted, rule("api.example.com", 0), false},
		"an address":                     {restricted, rule("192.0.2.7", 5432), true},
		"no rule":                        {restricted, rule("example.net", 0), false},
	} {
		if says, ok := c.network.Allows(c.place); ok != c.want || says == "" {
			t.Errorf("%s: %v, %s", name, ok, says)
		}
	}
}
