package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// The list of branches has the states that the list of sandboxes has.
func TestStatesOfBranches(t *testing.T) {
	t.Parallel()
	var list []branch.Info
	for _, name := range []string{"runs", "damaged", "unreadable", "of-another", "without", "gone"} {
		list = append(list, branch.Info{Name: name, Repo: "/r"})
	}
	rows := environmentRows(list, []sandbox.Info{
		{Name: "runs", State: sandbox.StateRunning, Spec: sandbox.Spec{Repo: "/r"}},
		{Name: "damaged", State: sandbox.StateDamaged, Spec: sandbox.Spec{Repo: "/r"}},
		{Name: "unreadable", State: sandbox.StateDamaged},
		{Name: "of-another", State: sandbox.StateRunning, Spec: sandbox.Spec{Repo: "/other"}},
		{Name: "without", State: sandbox.StateRunning},
	})
	var got []string
	for _, r := range rows {
		got = append(got, r.Name+" "+string(r.State))
	}
	if got := strings.Join(got, ", "); got != "runs running, damaged damaged, unreadable damaged, of-another gone, without gone, gone gone" {
		t.Error(got)
	}
	if a, b := since(time.Time{}), since(time.Now().Add(-time.Hour)); a != "-" || b == "-" {
		t.Errorf("%q, %q", a, b)
	}
}
