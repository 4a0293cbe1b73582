package cli

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// refs returns the names of all refs of a repository.
func refs(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(gittest.Git(t, dir, "for-each-ref", "--format=%(refname)"))
}

// TestRmBranch: rm --branch deletes the branch and the refs of a task on its remote, and nothing else. It refuses while
// the branch is the only name of its commits, and while another sandbox has the task.
func TestRmBranch(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(0, "success", create()...)
	branch := "refs/heads/" + r.order(0).TargetBranch
	work := gittest.Git(t, r.bare, "commit-tree", "-m", "work", "-p", "main", "main^{tree}")
	gittest.Git(t, r.bare, "update-ref", branch, work)
	gittest.Git(t, r.bare, "update-ref", workorder.CheckpointRef(tid), work)
	gittest.Git(t, r.bare, "update-ref", workorder.CheckpointRef("T-A1B2C3D5"), work)
	own := []string{branch, workorder.CheckpointRef(tid), workorder.StateRef(tid)}
	all := refs(t, r.bare)
	kept := func() {
		t.Helper()
		if got := refs(t, r.bare); !slices.Equal(got, all) {
			t.Errorf("changed: %v", got)
		}
		r.want(0, tid, "ps", "--json")
	}
	r.want(workorder.ExitGeneral, branch[len("refs/heads/"):], "rm", "--branch", tid)
	kept()
	r.st.Lease = &workorder.TaskLease{AttemptID: "00000000000000ff", Holder: "other", RenewedAt: time.Now(), TTLSeconds: 120}
	r.put()
	gittest.Git(t, r.bare, "update-ref", "refs/heads/main", work) // now its commits are elsewhere, too
	gittest.Git(t, r.bare, "update-ref", "refs/heads/x", work)
	r.want(workorder.ExitGit, "other", "rm", "--branch", tid)
	all = refs(t, r.bare)
	kept()

	r.env = map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "wrong"}
	r.want(workorder.ExitGit, "", "rm", "--branch", "--force", tid)
	r.env = nil
	kept()

	code, out, errs := r.run("rm", "--branch", "--force", "a1b2", "--json")
	var done app.RemovedTask
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 || done.TaskID != tid || !slices.Equal(slices.Sorted(maps.Keys(done.Refs)), own) {
		t.Fatalf("exit %d, %s%s, %v", code, out, errs, err)
	}
	want := slices.DeleteFunc(slices.Clone(all), func(ref string) bool { return slices.Contains(own, ref) })
	if got := refs(t, r.bare); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	r.want(workorder.ExitNotFound, tid, "rm", "--branch", tid)
}

// TestRmBranchAgain: a removal that was interrupted after it deleted the refs can be repeated.
func TestRmBranchAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(0, "success", create()...)
	for _, ref := range refs(t, r.bare) {
		if ref != "refs/heads/main" {
			gittest.Git(t, r.bare, "update-ref", "-d", ref)
		}
	}
	r.want(0, tid, "rm", "--branch", tid)
	r.without(0, tid, "ps", "--all")
}

// TestRmBranchOfARunningTask: a task that runs keeps all.
func TestRmBranchOfARunningTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.hold = make(chan struct{})
	r.want(0, "", create("--detach")...)
	r.want(workorder.ExitGeneral, tid, "rm", "--branch", tid)
	close(r.hold)
	r.want(0, "", "logs", "-f", tid)
	r.want(0, tid, "rm", "--branch", tid)
}

// TestRmBranchWithAPullRequest: the head of an open pull request stays; that of a merged one goes without a question.
func TestRmBranchWithAPullRequest(t *testing.T) {
	t.Parallel()
	r := newReviewRig(t, "")
	branch := "refs/heads/" + r.order(0).TargetBranch
	gittest.Git(t, r.bare, "update-ref", branch, gittest.Git(t, r.bare, "commit-tree", "-m", "work", "-p", "main", "main^{tree}"))
	r.f.SetBranch(r.order(0).TargetBranch, gittest.Git(t, r.bare, "rev-parse", branch))
	r.want(workorder.ExitGeneral, "#1", "rm", "--branch", tid)
	if !slices.Contains(refs(t, r.bare), branch) {
		t.Fatal("the branch is gone")
	}
	r.f.Close(r.pr, true)
	r.want(0, tid, "rm", "--branch", tid)
	if slices.Contains(refs(t, r.bare), branch) {
		t.Error("the branch is there")
	}
}

// TestRmBranchOfALocalRepository: the refs of a task whose remote is a path. A branch that is checked out stays; what
// another branch has merged goes.
func TestRmBranchOfALocalRepository(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, repo, args...) }
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Ada") // the machine may know no user
	git("config", "user.email", "ada@example.com")
	git("commit", "-q", "--allow-empty", "-m", "base")
	git("switch", "-q", "-c", "agent/"+tid+"-x")
	git("commit", "-q", "--allow-empty", "-m", "work")
	git("update-ref", workorder.CheckpointRef(tid), "HEAD")
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	lock, err := taskstore.New(r.state).Create(&taskstore.Record{TaskID: tid, CreatedAt: time.Now(), Collected: true, LocalRepo: repo, Status: workorder.StatusSuccess})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	r.want(workorder.ExitGit, tid, "rm", "--branch", tid)
	r.want(workorder.ExitGit, tid, "rm", "--branch", "--force", tid)
	git("switch", "-q", "main")
	r.want(workorder.ExitGeneral, tid, "rm", "--branch", tid)
	if got := refs(t, repo); len(got) != 3 {
		t.Fatalf("%v", got)
	}
	git("merge", "-q", "--no-ff", "-m", "merge", "agent/"+tid+"-x")
	r.want(0, tid, "rm", "--branch", tid)
	if got := refs(t, repo); !slices.Equal(got, []string{"refs/heads/main"}) {
		t.Errorf("%v", got)
	}
}
