package rootgit

import (
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A plan that was cut short is repeated under its id, from the current base; a task is never turned into a
// plan.
func TestPlanAnew(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := newBox(t, srv, workorder.ModePlan)
	first.start(t)
	if err := first.Lander.Release(
		t.Context(),
		workorder.Attempt{Status: workorder.StatusInterrupted, EndedBy: workorder.EndedBySignal},
	); err != nil {
		t.Fatal(err)
	}
	bare := srv.Root + "/r.git"
	moved := gittest.Git(t, bare, "commit-tree", "-p", "main", "-m", "more", "main^{tree}")
	gittest.Git(t, bare, "update-ref", "refs/heads/main", moved)
	again := newBox(t, srv, workorder.ModePlan)
	again.Repos.Order.Task = "do y"
	c, restored := again.start(t)
	if restored != nil || c.Continues || c.Attempt != 2 || c.BaseSHA != moved || c.State.Task != "do y" {
		t.Errorf("%+v, restored %+v", c, restored)
	}
	if err := again.Lander.Release(
		t.Context(),
		workorder.Attempt{Status: workorder.StatusPlanned, EndedBy: workorder.EndedByAgent, Plan: "1. y"},
	); err != nil {
		t.Fatal(err)
	}
	if s := again.Ledger.State; len(s.Attempts) != 2 || s.Attempts[1].Plan != "1. y" {
		t.Errorf("%+v", s.Attempts)
	}

	f := newFixture(t, nil)
	f.commit(t, "a")
	f.land(t)
	plan := newBox(t, f.srv, workorder.ModePlan)
	base, sha, err := plan.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Claimer.Claim(t.Context(), base, sha); !errors.Is(err, claim.ErrTaskExists) {
		t.Errorf("a task became a plan: %v", err)
	}
}
