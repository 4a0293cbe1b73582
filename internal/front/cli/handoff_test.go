package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestHandoff takes a task's work over: by its id, or as the last task.
func TestHandoff(t *testing.T) {
	t.Parallel()
	repo, state, dir := t.TempDir(), t.TempDir(), t.TempDir()
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, repo, args...) }
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Ada") // the machine may know no user
	git("config", "user.email", "ada@example.com")
	git("commit", "-q", "--allow-empty", "-m", "base")
	base := git("rev-parse", "HEAD")
	git("switch", "-q", "-c", "agent/T-A1B2C3D4-x")
	write(t, filepath.Join(repo, "new"), "\x1b[2Jnew\n")
	git("add", "-A")
	git("commit", "-q", "-m", "work")
	head := git("rev-parse", "HEAD")
	git("switch", "-q", "main")
	result := &workorder.Result{TaskID: "T-A1B2C3D4", Status: workorder.StatusSuccess, Branch: "agent/T-A1B2C3D4-x", BaseSHA: base, HeadSHA: head}
	b, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, workorder.ResultFile), string(b))
	lock, err := taskstore.New(state).Create(&taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: time.Now(), Collected: true, Dir: dir, LocalRepo: repo, Status: workorder.StatusSuccess})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	at := repo
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{
			Dir: at,
			Getenv: func(name string) string {
				return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name]
			},
		})
		if code := Main(t.Context(), a, args); code != want {
			t.Errorf("%q: exit %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	if got := run(0, "diff", "A1B2", "--name-only"); got != "new\n" {
		t.Errorf("diff: %q", got)
	}
	if got := run(0, "diff"); !strings.Contains(got, "+\x1b[2Jnew\n") { // as it is, for git apply
		t.Errorf("diff: %q", got)
	}
	if got := run(0, "apply"); got != "new\n" || git("status", "--porcelain") != "A  new" {
		t.Errorf("apply: %q, %q", got, git("status", "--porcelain"))
	}
	git("reset", "-q", "--hard")
	var l app.WorkLog
	if err := json.Unmarshal([]byte(run(0, "log", "--json")), &l); err != nil || l.TaskID != result.TaskID || l.Base != base || l.Head != head ||
		len(l.Commits) != 1 || l.Commits[0].Commit != head || len(l.Attempts) != 1 || l.Attempts[0].Head != head {
		t.Errorf("log: %+v, %v", l, err)
	}
	if got := run(0, "log", "a1b2", "-p"); !strings.Contains(got, head) || !strings.Contains(got, "+new\n") {
		t.Errorf("log -p: %q", got)
	}
	var d app.TaskDetails
	if err := json.Unmarshal([]byte(run(0, "inspect", "a1b2")), &d); err != nil || d.TaskID != result.TaskID || len(d.Attempts) != 1 ||
		!strings.Contains(string(d.Result), head) {
		t.Errorf("inspect: %+v, %v", d, err)
	}
	if got := run(0, "status", "a1b2"); !strings.Contains(got, result.TaskID) || !strings.Contains(got, "success") {
		t.Errorf("status: %q", got)
	}
	run(workorder.ExitUsage, "merge", "--delete")
	if got := run(0, "merge", "--json"); !strings.Contains(got, head) || git("log", "--format=%s", "-1") != "Merge task T-A1B2C3D4" {
		t.Errorf("merge: %q", got)
	}
	if got := run(0, "merge", "A1B2", "--json"); !strings.Contains(got, `"changed": false`) {
		t.Errorf("merge: %q", got)
	}
	git("reset", "-q", "--hard", base)
	other := t.TempDir()
	gittest.Git(t, other, "init", "-q")
	at = other // a repository that the task is not of
	for _, verb := range []string{"diff", "log", "merge", "apply", "checkout", "open"} {
		run(workorder.ExitNotFound, verb)
	}
	if got := git("status", "--porcelain", "--branch"); got != "## main" {
		t.Errorf("changed from elsewhere: %q", got)
	}
	if got := run(0, "diff", "A1B2", "--name-only"); got != "new\n" {
		t.Errorf("diff: %q", got)
	}
	at = t.TempDir() // no repository
	if got := run(0, "diff", "--name-only"); got != "new\n" {
		t.Errorf("diff: %q", got)
	}
	at = repo
	git("update-ref", "refs/remotes/origin/x", base)
	for _, name := range []string{"", "a b", "@", "HEAD", "-x", "refs/heads/x", "sandbox/x", "origin/x", base} {
		run(workorder.ExitUsage, "checkout", "a1b2", "--branch="+name)
	}
	git("switch", "-q", "--detach", base)
	back := strings.Fields(run(0, "checkout", "a1b2", "-b", "try"))
	if got := git("branch", "--show-current"); got != "try" {
		t.Errorf("on %q", got)
	}
	git(back[len(back)-3:]...) // as git itself takes it
	if got := git("branch", "--show-current"); got != "" || git("rev-parse", "HEAD") != base {
		t.Errorf("not back: on %q", got)
	}
	git("switch", "-q", "main")
	run(0, "checkout", "a1b2")
	if got := git("branch", "--show-current"); got != result.Branch {
		t.Errorf("on %q", got)
	}
	run(workorder.ExitNotFound, "open", "--print")
	write(t, filepath.Join(dir, workorder.ReportHTML), "<p>")
	if got := run(0, "open"); got != filepath.Join(dir, workorder.ReportHTML)+"\n" {
		t.Errorf("open: %q", got)
	}
	run(workorder.ExitNotFound, "open", "--pr")
	run(workorder.ExitUsage, "diff", "--stat", "--name-only")
	if err := os.RemoveAll(filepath.Join(state, "T-A1B2C3D4")); err != nil {
		t.Fatal(err)
	}
	run(workorder.ExitNotFound, "diff")
}
