package boot

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestPlanMode(t *testing.T) {
	t.Parallel()
	f := &fake{plan: func() (string, string, error) { return "# Do it\n", "plan.md", nil }}
	o := order()
	o.Mode, o.Repair.MaxAttempts = workorder.ModePlan, 2
	r := play(t, f, o, nil)
	if r.code != workorder.ExitOK || r.result.Status != workorder.StatusPlanned || r.result.Plan != "# Do it\n" || r.result.Branch != "" ||
		r.result.Pushed {
		t.Errorf("code %d, %+v", r.code, r.result)
	}
	for _, never := range []string{"save", "commit", "land", "validate", "push true", "push false"} {
		if f.called(never) {
			t.Errorf("%s was called: %q", never, f.calls)
		}
	}
	if f.released == nil || f.released.Plan != "# Do it\n" || f.released.Status != workorder.StatusPlanned {
		t.Errorf("the remote received %+v", f.released)
	}
	if r.result.NextCommand != "sandbox-agent create --from-plan "+o.TaskID ||
		!slices.ContainsFunc(r.result.Evidence, func(e workorder.Evidence) bool { return e.Path == "plan.md" }) {
		t.Errorf("next %q, evidence %+v", r.result.NextCommand, r.result.Evidence)
	}
}

func TestNoPlan(t *testing.T) {
	t.Parallel()
	f := &fake{plan: func() (string, string, error) { return "", "", errors.New("the agent made no plan") }}
	o := order()
	o.Mode = workorder.ModePlan
	if r := play(
		t,
		f,
		o,
		nil,
	); r.result.Status != workorder.StatusFailed || r.result.EndedBy != workorder.EndedByAgent ||
		r.result.Reasons.Code() != workorder.ReasonNoPlan {
		t.Errorf("%+v", r.result)
	}
}

// A plan is no work to go on with.
func TestContinueOfAPlan(t *testing.T) {
	t.Parallel()
	c := continued(0)
	c.State.Attempts[0].Mode = workorder.ModePlan
	f := &fake{cloned: c, agent: func(context.Context) AgentEnd { t.Error("the agent ran"); return AgentEnd{} }}
	o := order()
	o.Mode = workorder.ModeContinue
	if r := play(t, f, o, nil); r.result.Status != workorder.StatusError || r.result.EndedBy != workorder.EndedByOrder {
		t.Errorf("%+v", r.result)
	}
}
