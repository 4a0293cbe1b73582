package cli

import (
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A task is rebased however it ended, from where it is known and from elsewhere.
func TestRebaseCommand(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent), ends(workorder.StatusSuccess, workorder.EndedByAgent), ends(workorder.StatusFailed, workorder.EndedByValidation), ends(workorder.StatusError, workorder.EndedByGit), ends(workorder.StatusNoChanges, workorder.EndedByGit))
	r.want(workorder.ExitNotFound, tid, "rebase", tid, "-p", "P")
	r.want(0, "success", create("--timeout-minutes", "7")...)
	r.want(workorder.ExitUsage, "--task", "rebase", tid, "--task", "x")
	r.want(workorder.ExitUsage, "a..b", "rebase", tid, "--onto", "a..b")
	r.want(workorder.ExitUsage, "--target-branch main", "rebase", tid, "--target-branch", "main")
	r.want(0, `"mode": "rebase"`, "rebase", tid, "--dry-run", "--json")
	r.want(0, `"onto": "release"`, "rebase", tid, "--dry-run", "--json", "--onto", "release")
	r.boxes(1)
	r.want(0, "success", "rebase", "a1b2")
	second := r.order(1)
	if diff := cmp.Diff(&workorder.Rebase{}, second.Rebase); diff != "" || second.Mode != workorder.ModeRebase || second.Task != "" || second.TimeoutMinutes != 7 || second.TargetBranch != r.order(0).TargetBranch {
		t.Errorf("%s%+v", diff, second)
	}
	r.want(workorder.ExitTaskFailed, "", "rebase", tid, "--onto", "release", "--include-others", "--json")
	if o := r.order(2); o.Rebase.Onto != "release" || !o.Rebase.Foreign {
		t.Errorf("%+v", o.Rebase)
	}
	r.state = t.TempDir() // another machine
	r.want(workorder.ExitGit, "", "rebase", tid, "-p", "P")
	r.want(0, "", "rebase", tid)
	if o := r.order(4); o.Mode != workorder.ModeRebase || len(o.Ended) != 1 {
		t.Errorf("%+v", o)
	}
	r.boxes(5)
}

// A pull request stands for its task.
func TestRebaseOfAPullRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(0, "success", create()...)
	branch := r.order(0).TargetBranch
	gittest.Git(t, r.bare, "branch", branch, "main")
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app"})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	f.AddToken("tok", "ann")
	f.SetBranch(branch, forgetest.SHA("x"))
	n := f.AddPull("ann", "x", "", forgetest.Pull{Head: branch, Base: "main"})
	fork := f.AddPull("ann", "x", "", forgetest.Pull{Head: branch, Base: "main", HeadRepo: "eve/app"})
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	b, err := os.ReadFile(r.project)
	if err != nil {
		t.Fatal(err)
	}
	yaml := string(b) + "pr: {api_url: " + srv.URL + "/api/v3, repository: o/app}\n"
	if err := os.WriteFile(r.project, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	r.want(workorder.ExitGit, "eve/app", "rebase", "--pr", strconv.Itoa(fork), "-p", "P")
	r.want(workorder.ExitUsage, tid, "rebase", "T-00000000", "--pr", strconv.Itoa(n), "-p", "P")
	r.want(workorder.ExitUsage, "-1", "rebase", "--pr", "-1", "-p", "P")
	r.boxes(1)
	r.want(0, "success", "rebase", "--pr", strconv.Itoa(n), "-p", "P")
	if o := r.order(1); o.Mode != workorder.ModeRebase || o.TaskID != tid || o.PR == nil || o.PR.Base != "main" {
		t.Errorf("%+v", o)
	}
}
