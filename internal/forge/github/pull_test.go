package github_test

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestPlanWithoutDrafts: it is opened all the same, and said so.
func TestPlanWithoutDrafts(t *testing.T) {
	t.Parallel()
	_, c, _ := scripted(t, forgetest.Options{NoDrafts: true})
	s := spec()
	s.Draft = true
	if pr, err := c.OpenPR(t.Context(), s); err != nil || !pr.Created || pr.Draft || len(pr.Warnings) != 1 {
		t.Errorf("got %+v, %v", pr, err)
	}
}

// TestRefusedForAReason: what GitHub refuses a new pull request for has a next step of its own.
func TestRefusedForAReason(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	f.SetBranch("same", forgetest.SHA("main"))
	said := map[string]bool{forge.NextSteps[forge.Invalid]: true}
	for _, s := range []forge.PRSpec{
		{Head: "absent", Base: "main", Title: "x"},
		{Head: "same", Base: "main", Title: "x"},
		{Head: branch, Base: "absent", Title: "x"},
	} {
		_, err := c.OpenPR(t.Context(), s)
		if e := wantKind(t, err, forge.Invalid); said[e.Next] {
			t.Errorf("%s into %s: the step is that of another refusal: %s", s.Head, s.Base, e.Next)
		} else {
			said[e.Next] = true
		}
	}
}
