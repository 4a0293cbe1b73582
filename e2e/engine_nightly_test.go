//go:build e2e && nightly

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The engine is away for good: the run is given up in bounded time, with a
// result; when the engine is back, nothing was lost.
func TestEngineAwayForGood(t *testing.T) {
	t.Parallel()
	c := newCable(t)
	w := newCarefulUser(t, "DOCKER_HOST="+c.host()).work("sleep 2")
	c.cut()
	end := w.wait()
	if end.code != workorder.ExitBox {
		t.Errorf("exit code %d", end.code)
	}
	if r := w.u.plainResult(w.id); r.Status != workorder.StatusLost || r.EndedBy != workorder.EndedByHost {
		t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
	}
	var rows []psRow
	if p := w.u.run("", "ps", "--json"); p.code != workorder.ExitBox || json.Unmarshal([]byte(p.stdout), &rows) != nil || len(rows) != 1 || rows[0].Status != "unknown" {
		t.Errorf("ps without an engine: exit code %d, %+v", p.code, rows)
	}
	if p := w.u.run("", "result", w.id); p.code != workorder.ExitBox {
		t.Errorf("result without an engine: exit code %d", p.code)
	}
	c.join(t)
	if p := w.u.run("", "result", w.id); p.code != 0 {
		t.Errorf("result: exit code %d", p.code)
	}
	r := w.u.result(w.id)
	if r.Status != workorder.StatusSuccess {
		t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
	}
	landed(t, w.repo, r)
}
