//go:build e2e

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A run that learns refuses nothing that has a name; what `network suggest` makes of it
// is enough for the same run in earnest, and not more than it needs.
func TestPolicyLearnReplay(t *testing.T) {
	t.Parallel()
	host := hostAddress(t)
	o := newOutside(t, "unused", host)
	srv := gittest.NewAt(t, "tok-learn-0123456789", o.host)
	url := srv.Create(t, "app.git", map[string]string{"README": "x"})
	u := newUser(t, "SANDBOX_AGENT_GIT_TOKEN=tok-learn-0123456789")
	project := func(network string) string {
		return u.project(`
name: learn
repo: ` + url + `
branch: main
` + network + `
lifecycle:
  setup:
    - curl -sf http://setup.test/learnsetup
harness:
  name: command
  command: |
    set -e; echo made > made
    curl -sfk https://TLS.test/learntls
    curl -sfk https://tls.test/learntls
    curl -sf http://plain.test/learnplain
    curl -sfk https://tls.test:8443/learnport
    getent hosts looked.test
    curl -sf -H 'Host: vhost.test' http://dialled.test/learnvhost
    printf 'raw\n' | timeout 10 bash -c 'exec 3<>/dev/tcp/raw.test/80 && cat >&3 && cat <&3 >/dev/null'
    bash -c 'exec 3<>/dev/tcp/ssh.test/2222 && read -u 3 hello && echo learnssh >&3 && test "$hello" = hello'
validate:
  reaches: curl -sfk https://a.b.wild.test/learnvalidate
`)
	}
	dns := "  dns: [" + o.host + "]"
	first := u.run("", "create", "--task", "learn", "-p", project("network:\n  mode: restricted\n  learn: true\n"+dns))
	if r := u.plainResult(first.task(t)); first.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s: %s\n%+v", first.code, r.Status, r.Reasons, r.Network)
	}
	proposal := u.run("", "network", "suggest", first.task(t))
	t.Logf("%s", proposal.stdout)
	var got struct {
		Network struct {
			Mode  workorder.NetworkMode
			Allow []string
		}
	}
	if err := yaml.Unmarshal([]byte(proposal.stdout), &got); err != nil || proposal.code != 0 {
		t.Fatalf("exit code %d, %v", proposal.code, err)
	}
	slices.Sort(got.Network.Allow)
	want := []string{
		"a.b.wild.test@private", "dialled.test", "looked.test", "plain.test@private", "raw.test:80@private", "setup.test@private", "ssh.test:2222@private",
		"tls.test:8443@private", "tls.test@private", "vhost.test@private",
	}
	if got.Network.Mode != workorder.NetworkRestricted || !slices.Equal(got.Network.Allow, want) {
		t.Errorf("%s: proposed %q, not %q", got.Network.Mode, got.Network.Allow, want)
	}
	before := o.arrived()
	for _, token := range []string{"learnsetup", "learntls", "learnplain", "learnport", "learnssh", "learnvhost", "learnvalidate"} {
		if !before[token] {
			t.Errorf("%s did not arrive while learning: %q", token, slices.Sorted(maps.Keys(before)))
		}
	}
	// The proposed rules are used as printed.
	second := u.run("", "create", "--task", "replay", "-p", project(strings.TrimSpace(proposal.stdout)+"\n"+dns))
	r := u.plainResult(second.task(t))
	if second.code != 0 || r.Status != workorder.StatusSuccess {
		t.Errorf("exit code %d, %s: %s", second.code, r.Status, r.Reasons)
	}
	if r.Network == nil || len(r.Network.Hosts) == 0 {
		t.Fatalf("nothing is known of the network: %+v", r.Network)
	}
	for _, h := range r.Network.Hosts {
		if h.Status != workorder.NetworkAllowed {
			t.Errorf("the proposal does not allow %+v", h)
		}
	}
}
