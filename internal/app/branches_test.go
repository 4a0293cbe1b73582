package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The list of branches has the states that the list of sandboxes has.
func TestStatesOfBranches(t *testing.T) {
	t.Parallel()
	var list []branch.Info
	for _, name := range []string{"runs", "damaged", "unreadable", "of-another", "without", "gone"} {
		list = append(list, branch.Info{Name: name, Repo: "/r"})
	}
	rows := branchRows(list, []sandbox.Info{
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
}

// TestHintOfADeletion: what is advised to remove a sandbox removes its branch as well, where that was asked for.
func TestHintOfADeletion(t *testing.T) {
	t.Parallel()
	err := deleteError("dev", fmt.Errorf("sandbox dev stays: %w", sandbox.ErrUnsaved))
	if got := exiterr.Hint(err); !strings.Contains(got, "sandbox-agent delete --force dev") || exiterr.Code(err) != workorder.ExitGeneral {
		t.Errorf("hint %q, exit code %d", got, exiterr.Code(err))
	}
}
