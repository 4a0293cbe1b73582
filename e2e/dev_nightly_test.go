//go:build e2e && nightly

package e2e

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A server that does not come is said in the proof with its own words, and costs the run nothing but time.
func TestDevServerFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head string
		want []string
	}{
		"never ready": {"dev: {command: 'echo compiling for ever; sleep 600', port: 3123, start_timeout: 5s}\n", []string{"compiling for ever"}},
		"dies":        {"validate: {test: 'true'}\ndev: {command: 'echo no such module; exit 4', port: 3123}\n", []string{"no such module", "logs/proof-head-dev.log"}},
		"port taken": {
			"lifecycle: {setup: ['setsid python3 -m http.server 3123 >/dev/null 2>&1 & until curl -s http://127.0.0.1:3123 >/dev/null; do sleep 0.1; done']}\n" +
				"dev: {command: python3 -m http.server 3123, port: 3123}\n", []string{"3123"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			run := u.run("", "create", "--task", "x", "--repo", u.repo(devFiles()), "-p", u.project(scripted(c.head, "echo x >x\n")))
			r := u.plainResult(run.task(t))
			if run.code != 0 || r.Status != workorder.StatusSuccess || r.Proof == nil || len(r.Proof.Pages) > 0 {
				t.Fatalf("exit code %d, %s, %+v, %q", run.code, r.Status, r.Proof, r.Warnings)
			}
			for _, want := range c.want {
				if !r.Proof.Reasons.Has(workorder.ReasonPages) || !strings.Contains(r.Proof.Reasons.String(), want) {
					t.Errorf("%q does not say %q", r.Proof.Reasons, want)
				}
			}
		})
	}
}
