package outcome

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestProposals: users copy rules out of a result, so a box cannot smuggle others in.
func TestProposals(t *testing.T) {
	t.Parallel()
	res := &workorder.Result{Network: &workorder.NetworkReport{}}
	want := map[string]string{
		"a.example": "- a.example", "b.example": "- a.example", "c.example": "- '*.c.example'", "d.example": "- d.example:22", "2001:db8::1": `- "[2001:db8::1]:22"`,
		"e.example": "- e.example\n- evil.example", "f.example": "everything",
	}
	for host, rule := range want {
		res.Network.Hosts = append(res.Network.Hosts, workorder.NetworkHost{Host: host, Rule: rule})
	}
	proposals(res)
	for _, h := range res.Network.Hosts {
		kept := slices.Contains([]string{"a.example", "d.example", "2001:db8::1"}, h.Host)
		if kept && h.Rule != want[h.Host] || !kept && h.Rule != "" {
			t.Errorf("%s: %q", h.Host, h.Rule)
		}
	}
	proposals(&workorder.Result{})
}
