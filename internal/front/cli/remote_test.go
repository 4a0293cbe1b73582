package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestOnlySaved: a task of which the remote has neither state nor branch, but work
// that was saved beside them, is known, and its base may be gone as well.
func TestOnlySaved(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create()...)
	gittest.Git(t, r.bare, "update-ref", workorder.CheckpointRef(tid), "main")
	gittest.Git(t, r.bare, "update-ref", "-d", workorder.StateRef(tid))
	gittest.Git(t, r.bare, "update-ref", "-d", "refs/heads/main")

	r.want(workorder.ExitTimeout, "", "continue", tid)
	if o := r.order(1); o.Mode != workorder.ModeContinue || o.Task != "do it" || o.TargetBranch != r.order(0).TargetBranch {
		t.Errorf("%+v", o)
	}
	gittest.Git(t, r.bare, "update-ref", "-d", workorder.StateRef(tid))
	r.state = t.TempDir()
	r.want(workorder.ExitUsage, "`sandbox-agent continue "+tid+"`", create()...)
	r.want(workorder.ExitGit, "--target-branch, --task", "continue", tid, "-p", "P")
	r.boxes(2)
	r.want(workorder.ExitTimeout, "", ifExists()...)
	if o := r.order(2); o.Mode != workorder.ModeContinue || o.Task != "do it" || o.TargetBranch != r.order(0).TargetBranch {
		t.Errorf("%+v", o)
	}
}

// A remote that does not let us in costs no box, and the task says so.
func TestRemoteThatDoesNotServe(t *testing.T) {
	t.Parallel()
	const wrong = "wrong-token-987654321"
	for name, c := range map[string]struct {
		token string
		turn  func(yaml string) string
		says  []string
	}{
		"unreachable": {"tok", func(string) string {
			return "name: shop\nrepo: http://127.0.0.1:1/app.git\nharness: {name: command, command: 'true'}\n"
		}, []string{"127.0.0.1:1"}},
		"wrong token":        {wrong, func(yaml string) string { return yaml }, nil},
		"missing branch":     {"tok", func(yaml string) string { return yaml + "branch: nowhere\n" }, []string{"nowhere", "main"}},
		"missing repository": {"tok", func(yaml string) string { return strings.Replace(yaml, "/r.git", "/none.git", 1) }, []string{"none.git"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
			r.env = map[string]string{"SANDBOX_AGENT_GIT_TOKEN": c.token}
			yaml, err := os.ReadFile(r.project)
			if err == nil {
				err = os.WriteFile(r.project, []byte(c.turn(string(yaml))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			code, out, errs := r.run(create()...)
			if code != workorder.ExitGit || !strings.Contains(errs, "\nhint: ") || strings.Contains(out+errs, wrong) {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
			for _, want := range c.says {
				if !strings.Contains(errs, want) {
					t.Errorf("it does not name %s:\n%s", want, errs)
				}
			}
			r.boxes(0)
			b, err := os.ReadFile(filepath.Join(r.state, tid, workorder.ResultFile))
			if err != nil {
				t.Fatal(err)
			}
			if res, err := workorder.DecodeResult(b); err != nil || res.Status != workorder.StatusError || res.EndedBy != workorder.EndedByGit || len(res.Reasons) == 0 || strings.Contains(string(b), wrong) {
				t.Errorf("%v, %s", err, b)
			}
		})
	}
}

// A task that the remote does not know is not started.
func TestContinueOfAnUnknownTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	for _, args := range [][]string{
		{"continue", "--project", "P", "--task-id", tid},
		{"continue", "--project", "P", "--task", "x", "--task-id", tid, "--target-branch", "agent/" + tid + "-x"},
		{"continue", tid, "--now", "--project", "P"},
	} {
		r.want(workorder.ExitNotFound, tid, args...)
	}
	r.boxes(0)
	if _, err := os.Stat(filepath.Join(r.state, tid)); !os.IsNotExist(err) {
		t.Errorf("it became a task: %v", err)
	}
}
