//go:build e2e && nightly

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestRebaseConflict(t *testing.T) {
	t.Parallel()
	m := newMoving(t, resolveIt)
	tip := m.push("main", "Zwei", zwei)
	c := m.u.run("", "rebase", "--pr", "1", "-p", m.project)
	r := m.u.plainResult(m.first.TaskID)
	x := r.Rebased
	if c.code != 0 || x == nil || !x.Pushed || !slices.Equal(x.Conflicts, []string{"f"}) || r.Agent.ExitCode == nil {
		t.Fatalf("exit code %d, %s: %s, %+v", c.code, r.Status, r.Reasons, x)
	}
	if m.bare("show", r.HeadSHA+":f") != strings.TrimSpace(strings.Replace(tenLines, "2\n", "zwei two\n", 1)) || m.bare("merge-base", tip, r.HeadSHA) != tip {
		t.Errorf("f is %q", m.bare("show", r.HeadSHA+":f"))
	}
	if got := m.bare("log", "--format=%an %s", r.HeadSHA, "^"+tip); got != "Bea Greet\nsandbox-agent Change two" {
		t.Errorf("%q", got)
	}
	if said := m.comment(); !strings.Contains(said, "Change two") || !slices.ContainsFunc(x.Moved, func(c workorder.RangePair) bool { return c.How == workorder.RangeChanged }) {
		t.Errorf("%+v, the comment:\n%s", x.Moved, said)
	}
}
