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

// TestPullRequest: what a box calls the address of a pull request is opened on the user's desktop.
func TestPullRequest(t *testing.T) {
	t.Parallel()
	for address, kept := range map[string]bool{
		"https://github.com/o/r/pull/7": true, "http://127.0.0.1:3000/o/r/pull/7": true,
		"file:///tmp/evil.desktop": false, "vscode://file/x": false, "-x": false, "https:evil": false, "/tmp/x": false, "\x00": false,
	} {
		box := &workorder.PR{Number: 7, URL: address, State: "open"}
		res := &workorder.Result{PR: box}
		pullRequest(res)
		if (res.PR.URL == address) != kept || res.PR.Number != 7 || box.URL != address {
			t.Errorf("%q: %+v", address, res.PR)
		}
	}
	pullRequest(&workorder.Result{})
}
