package pullrequest

import (
	"context"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Each repository with commits gets a pull request that names the others; no other forge gets the token.
func TestOpenAll(t *testing.T) {
	t.Parallel()
	commits := []workorder.Commit{{SHA: strings.Repeat("a1", 20), Subject: "x"}}
	o := &workorder.Order{
		TaskID: "T-A1B2C3D4", Task: "x", Repo: "https://github.com/o/app", Branch: "main",
		PR: &workorder.PullRequest{Base: "release", Repository: "o/app"},
		Repos: []workorder.OrderRepo{
			{Name: "api", Repo: "https://github.com/o/api"}, {Name: "none", Repo: "https://github.com/o/none"}, {Name: "away", Repo: "https://gitlab.com/o/away"},
		},
	}
	r := &workorder.Result{
		Repo: o.Repo, Branch: "agent/T-A1B2C3D4-x", BaseBranch: "main", Pushed: true, Commits: commits, Repos: []workorder.RepoResult{
			{Name: "api", Repo: o.Repos[0].Repo, Branch: "agent/T-A1B2C3D4-x", BaseBranch: "dev", Pushed: true, Commits: commits},
			{Name: "none", Repo: o.Repos[1].Repo},
			{Name: "away", Repo: o.Repos[2].Repo, Branch: "agent/T-A1B2C3D4-x", Pushed: true, Commits: commits},
		},
	}
	bodies, numbers := map[string]string{}, map[string]int{o.Repo: 1, o.Repos[0].Repo: 2}
	pr, why, warnings, err := OpenAll(t.Context(), o, r, func(_ context.Context, o *workorder.Order, r *workorder.Result) (
		*workorder.PR, string, []string, error,
	) {
		if s := spec(o, r); o.Repo == "https://github.com/o/api" && (s.Base != "dev" || o.PR.Repository != "") {
			t.Errorf("%+v, %+v", s, o.PR)
		}
		bodies[o.Repo] = Body(ReportInput{Order: o, Result: r})
		return &workorder.PR{Number: numbers[o.Repo], URL: o.Repo + "/pull/x"}, "", nil, nil
	})
	if err != nil || why != "" || pr == nil || pr.Number != 1 || r.Repos[0].PR == nil || r.Repos[0].PR.Number != 2 || len(bodies) != 2 {
		t.Fatalf("%+v, %q, %v, %+v, %d bodies", pr, why, err, r.Repos, len(bodies))
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "away: ") {
		t.Errorf("%q", warnings)
	}
	if !strings.Contains(bodies[o.Repo], "https://github.com/o/api/pull/x") || !strings.Contains(bodies[o.Repos[0].Repo], "https://github.com/o/app/pull/x") {
		t.Errorf("%q", bodies)
	}
}
