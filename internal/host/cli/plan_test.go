package cli

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestPlannedText(t *testing.T) {
	t.Parallel()
	got := plannedText("Do it\n", "\n1. First\n", "and this")
	for i, want := range []string{"Do it\n\n# The plan\n", "\n\n1. First\n", "\n# What the user adds\n", "\nand this"} {
		at := strings.Index(got, want)
		if at < 0 {
			t.Fatalf("%d: it lacks %q:\n%s", i, want, got)
		}
		got = got[at+len(want)-1:]
	}
	if strings.Contains(plannedText("t", "p", ""), "the user adds") {
		t.Error("nothing is added")
	}
}

// What is not a plan is not carried out, and a plan is not continued.
func TestFromPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.ByAgent), ends(workorder.StatusPlanned, workorder.ByAgent))
	r.want(0, "success", create()...)
	r.want(workorder.ExitUsage, "task "+tid+" has no plan (success)", "create", "--from-plan", tid, "--detach")
	r.want(workorder.ExitUsage, "not both", "create", "--from-plan", tid, "--issue", "3")
	r.want(workorder.ExitNotFound, "T-ZZZZZZZZ", "create", "-p", r.project, "--from-plan", "T-ZZZZZZZZ")
	r.want(0, "planned", "create", "-p", r.project, "--plan", "--task", "x", "--task-id", "T-00000PLN")
	if m := r.orders[len(r.orders)-1].Mode; m != workorder.ModePlan {
		t.Errorf("mode %s", m)
	}
	r.want(workorder.ExitNotFound, "read the plan", "create", "--from-plan", "T-00000PLN") // this box left none
	r.want(workorder.ExitGeneral, "done (planned)", "continue", "T-00000PLN")
}
