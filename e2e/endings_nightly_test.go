//go:build e2e && nightly

package e2e

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Of those who wait for the limit, one goes on when it resets.
func TestParkedTaskGoesOnOnce(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	u := k.machine(t)
	project := k.project(u, "", twice+`echo "{\"type\":\"limit\",\"resume_at\":\"$(date -u -d '+6 seconds' +%FT%TZ)\"}"`+deaf)
	r := k.ended(u, u.run("", k.create(project)...), workorder.StatusParked, workorder.EndedByLimit)
	if r.ResumeAt == nil || r.NextCommand != "sandbox-agent continue "+k.id+" --wait" {
		t.Fatalf("it can go on at %v by %q", r.ResumeAt, r.NextCommand)
	}
	first, second := u.start("", "continue", k.id, "--wait"), u.start("", "continue", k.id, "--wait")
	calls := []call{first.wait(), second.wait()}
	if calls[0].code != 0 {
		slices.Reverse(calls)
	}
	end := k.ended(u, calls[0], workorder.StatusSuccess, workorder.EndedByAgent)
	k.finished(t, end)
	k.boxes(t, 2)
	if started := end.StartedAt; started.Before(*r.ResumeAt) {
		t.Errorf("it went on at %s, the limit resets at %s", started, r.ResumeAt)
	}
	if c := u.run("", "continue", k.id, "--wait"); c.code != workorder.ExitGeneral {
		t.Errorf("continue of a task that is done: exit code %d", c.code)
	}
}
