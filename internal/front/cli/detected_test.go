package cli

import (
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestDetectedProjectGoesOn: the verbs that the README and the summary name work for a task without a project file, with the state
// directory that has its record, and without one. The task's base branch says what the project is, not the one that is the default by now.
func TestDetectedProjectGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "shop.git", map[string]string{"package.json": `{"scripts": {"test": "jest"}}`, "package-lock.json": "{}"})
	r.bare = filepath.Join(srv.Root, "shop.git")
	feedback := filepath.Join(t.TempDir(), "feedback.md")
	write(t, feedback, "- do it\n")
	r.want(workorder.ExitTimeout, "sandbox-agent continue "+tid, "create", "--repo", url, "--task", "do it", "--task-id", tid, "--command", "true")
	if rec, err := taskstore.New(r.state).Load(tid); err != nil || rec.Request.ProjectBy != taskstore.Detected || rec.Request.ProjectFile != "" {
		t.Fatalf("%v: %+v", err, rec)
	}
	gittest.Git(t, r.bare, "branch", "later", gittest.Git(t, r.bare, "commit-tree", "-m", "none", gittest.Git(t, r.bare, "mktree", "--missing")))
	gittest.Git(t, r.bare, "symbolic-ref", "HEAD", "refs/heads/later")
	verbs := [][]string{{"continue", tid}, {"revise", tid, "--feedback-file", feedback}, {"rebase", tid}}
	for _, args := range verbs {
		r.want(workorder.ExitTimeout, "", args...)
	}
	r.state = t.TempDir()
	for _, args := range verbs {
		r.want(workorder.ExitTimeout, "", append(args, "--repo", url, "--command", "true")...)
		r.state = t.TempDir()
	}
	r.boxes(1 + 2*len(verbs))
	for i := range 1 + 2*len(verbs) {
		if o := r.order(i); o.Repo != url || len(o.Validate) != 1 || o.Validate[0].Run != "npm run test" {
			t.Errorf("order %d is of another project: %s, %v", i, o.Repo, o.Validate)
		}
	}
}
