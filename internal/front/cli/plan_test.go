package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Only a plan is carried out, and no plan is continued.
func TestFromPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent), ends(workorder.StatusPlanned, workorder.EndedByAgent))
	r.want(0, "success", create()...)
	r.want(workorder.ExitUsage, "(success)", "create", "--from-plan", tid, "--detach")
	r.want(workorder.ExitUsage, "--issue", "create", "--from-plan", tid, "--issue", "3")
	r.want(workorder.ExitNotFound, "T-ZZZZZZZZ", "create", "-p", r.project, "--from-plan", "T-ZZZZZZZZ")
	r.want(0, "planned", "create", "-p", r.project, "--plan", "--task", "x", "--task-id", "T-00000PLN")
	if m := r.orders[len(r.orders)-1].Mode; m != workorder.ModePlan {
		t.Errorf("mode %s", m)
	}
	r.want(workorder.ExitNotFound, workorder.PlanFile, "create", "--from-plan", "T-00000PLN") // this box left none
	r.want(workorder.ExitGeneral, "(planned)", "continue", "T-00000PLN")
	// The plan's settings hold for the task that is made of it, and the user's changes of it count.
	r.want(0, "planned", "create", "-p", r.project, "--plan", "--task", "x", "--task-id", "T-00000PL2", "--network", "none", "--max-budget-usd", "1.5")
	rec, err := taskstore.New(r.state).Load("T-00000PL2")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(rec.Dir, workorder.PlanFile), []byte("1. Do\u202e it<!-- and more -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.want(0, "", "create", "--from-plan", "T-00000PL2", "--task", "and quickly", "--task-id", "T-00000DO2")
	o := r.orders[len(r.orders)-1]
	if carried, err := taskstore.New(r.state).Load("T-00000DO2"); err != nil || carried.Task != "x" || o.TargetBranch != "agent/T-00000DO2-x" {
		t.Errorf("%v: the list has %q, the branch is %s", err, carried.Task, o.TargetBranch)
	}
	if o.Mode != workorder.ModeCreate || o.Network.Mode != workorder.NetworkNone || o.MaxBudgetUSD == nil || *o.MaxBudgetUSD != 1.5 || !strings.Contains(o.Task, "1. Do it\n") {
		t.Errorf("mode %s, network %s, budget %v, task %q", o.Mode, o.Network.Mode, o.MaxBudgetUSD, o.Task)
	}
}

// The same command run again makes an interrupted plan anew, and never turns a task into a plan or a plan into a task.
func TestPlanAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusInterrupted, workorder.EndedBySignal), ends(workorder.StatusPlanned, workorder.EndedByAgent))
	again := []string{"create", "-p", r.project, "--plan", "--task", "x", "--task-id", "T-00000PLN", "--if-exists", "continue"}
	r.want(workorder.ExitInterrupted, "interrupted", again...)
	r.want(workorder.ExitUsage, "T-00000PLN", "continue", "T-00000PLN")
	r.want(workorder.ExitUsage, "T-00000PLN", "create", "-p", r.project, "--task", "x", "--task-id", "T-00000PLN", "--if-exists", "continue")
	r.want(0, "planned", again...)
	for _, o := range r.orders {
		if o.Mode != workorder.ModePlan {
			t.Errorf("a box was started with mode %s", o.Mode)
		}
	}
	r = newRig(t, ends(workorder.StatusInterrupted, workorder.EndedBySignal))
	r.want(workorder.ExitInterrupted, "interrupted", create()...)
	r.want(workorder.ExitUsage, tid, "create", "-p", r.project, "--plan", "--task", "x", "--task-id", tid, "--if-exists", "continue")
}
