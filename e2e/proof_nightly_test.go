//go:build e2e && nightly

package e2e

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A container that the agent leaves running does not stand beside the checks: what it would mend in the clean checkouts stays
// broken.
func TestProofAgainstContainers(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	// It leaves the work tree alone, whose changes would be committed: the check fails there, and has to fail in the clean checkout.
	script := `docker run -d --restart always -v /home/sandbox:/h --entrypoint sh ` + redisImage + ` -c 'while true; do for g in $(find /h -maxdepth 6 -name g 2>/dev/null); do echo right >$(dirname $g)/f; done; sleep 0.1; done' >/dev/null
mkdir -p ~/try && touch ~/try/g && until grep -q right ~/try/f; do sleep 0.1; done # it works
touch g && git add g && git commit -qm 'Look'`
	c := u.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"f": "wrong\n"}), "-p",
		u.project(scripted("services:\n  redis: {image: "+redisImage+"}\nvalidate: {test: 'for i in 1 2 3 4 5; do grep -q right f && exit 0; sleep 0.3; done; exit 1'}\n", script)))
	r := u.plainResult(c.task(t))
	if r.Proof == nil || len(r.Proof.Checks) != 1 {
		t.Fatalf("%s: %+v, %q", r.Status, r.Proof, r.Warnings)
	}
	if check := r.Proof.Checks[0]; check.Head == nil || check.Head.Passed {
		t.Errorf("the container passed the check: %+v; %s", check, r.Proof.Reasons)
	}
	if step(t, r, "services").Status != workorder.StepDone || len(r.Services) != 1 || r.Services[0].State != "ready" {
		t.Errorf("the project's own service was removed: %+v", r.Services)
	}
}
