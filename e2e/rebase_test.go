//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const tenLines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

// moving is a task with a pull request whose base goes on.
type moving struct {
	t       *testing.T
	u       *user
	srv     *gittest.Server
	forge   *forgetest.Server
	project string
	first   *workorder.Result
}

// newMoving has a commit of the agent's own and one that it made for Bea. No box ran the task: what would be on the remote and
// the forge is written there, and this machine knows nothing of it. The script is what an agent does that is started for a
// rebase.
func newMoving(t *testing.T, resolve string) *moving {
	t.Helper()
	m := newRemoteOfMoving(t, resolve)
	id := workorder.NewTaskID()
	m.first = &workorder.Result{TaskID: id, Branch: "agent/" + id + "-change-two"}
	dir := filepath.Join(t.TempDir(), "work")
	git := func(args ...string) string { return gittest.Git(t, dir, args...) }
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, t.TempDir(), "clone", "-q", m.srv.Root+"/app.git", dir)
	base := git("rev-parse", "HEAD")
	write("f", strings.Replace(tenLines, "2\n", "two\n", 1))
	git("commit", "-qam", "Change two", "--author", "sandbox-agent <sandbox-agent@example.org>")
	write("use.sh", "greet\n")
	git("add", "-A")
	git("commit", "-qm", "Greet", "--author", "Bea <bea@example.org>")
	m.first.HeadSHA = git("rev-parse", "HEAD")
	git("push", "-q", "origin", "HEAD:refs/heads/"+m.first.Branch)
	began := time.Now().Add(-time.Hour)
	state, err := (&workorder.State{
		TaskID: id, Project: "pulled", Task: "Change two", TargetBranch: m.first.Branch, BaseBranch: "main", BaseSHA: base, CreatedAt: began,
		Attempts: []workorder.Attempt{{
			ID: "00000000000000aa", Number: 1, Mode: workorder.ModeCreate, Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent,
			StartedAt: began, EndedAt: began.Add(time.Minute), HeadSHA: m.first.HeadSHA,
		}},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	git("checkout", "-q", "--orphan", "state")
	git("rm", "-rqf", ".")
	write(workorder.StateFile, string(state))
	git("add", "-A")
	git("commit", "-qm", "state")
	git("push", "-q", "origin", "HEAD:"+workorder.StateRef(id))
	m.first.PR = &workorder.PR{Number: m.forge.AddPull("runner", "Change two", "", forgetest.Pull{Head: m.first.Branch, Base: "main", Draft: true})}
	return m
}

// newRemoteOfMoving is the remote, the forge and the project, without a task.
func newRemoteOfMoving(t *testing.T, resolve string) *moving {
	t.Helper()
	files := map[string]string{
		"f": tenLines, "lib.sh": "greet() { echo hello; }\n",
		"check.sh": "set -e\n. ./lib.sh\nfor f in use*.sh; do if [ -e \"$f\" ]; then . \"./$f\"; fi; done\n",
	}
	f, srv, keys := besideForge(t, "labels: [agent]")
	yaml := keys + `
harness:
  name: command
  command: |
    set -e
    ` + strings.ReplaceAll(resolve, "\n", "\n    ") + `
validate:
  check: sh check.sh
`
	m := &moving{t: t, u: newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+forgeToken), srv: srv, forge: f}
	m.project = m.u.project(yaml)
	m.push("main", "Files", files)
	return m
}

func (m *moving) bare(args ...string) string {
	m.t.Helper()
	return gittest.Git(m.t, m.srv.Root+"/app.git", args...)
}

// ref is what the remote has under a name; empty: nothing.
func (m *moving) ref(name string) string {
	m.t.Helper()
	sha, err := m.srv.Repo("app.git").Resolve(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return sha
}

func (m *moving) head() string { return m.ref("refs/heads/" + m.first.Branch) }

// push is a commit by somebody else.
func (m *moving) push(branch, message string, files map[string]string) string {
	m.t.Helper()
	dir := filepath.Join(m.t.TempDir(), "other")
	gittest.Git(m.t, m.t.TempDir(), "clone", "-q", "-b", branch, m.srv.Root+"/app.git", dir)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	gittest.Git(m.t, dir, "add", "-A")
	gittest.Git(m.t, dir, "commit", "-qm", message)
	gittest.Git(m.t, dir, "push", "-q", "origin", "HEAD:"+branch)
	return gittest.Git(m.t, dir, "rev-parse", "HEAD")
}

// rebase runs the command and reads its result.
func (m *moving) rebase(args ...string) (call, *workorder.Result) {
	m.t.Helper()
	c := m.u.run("", append([]string{"rebase", m.first.TaskID, "-p", m.project}, args...)...)
	return c, m.u.plainResult(m.first.TaskID)
}

// unmoved checks that the branch is as the first attempt left it, and what else there has to be.
func (m *moving) unmoved(c call, r *workorder.Result, code int, status workorder.Status, kept bool) {
	m.t.Helper()
	if c.code != code || r.Status != status {
		m.t.Errorf("exit code %d, %s: %s, %q", c.code, r.Status, r.Reasons, r.Warnings)
	}
	if m.head() != m.first.HeadSHA || r.HeadSHA != m.first.HeadSHA {
		m.t.Errorf("the branch was moved to %s, the result says %s", m.head(), r.HeadSHA)
	}
	if kept && (r.Rebased == nil || r.Rebased.Pushed || m.ref(r.Rebased.Kept) == "") {
		m.t.Errorf("nothing is kept: %+v", r.Rebased)
	}
}

// comment is what was said on the pull request about the rebase; empty: nothing.
func (m *moving) comment() string {
	m.t.Helper()
	for _, c := range m.forge.Comments(m.first.PR.Number) {
		if strings.Contains(c.Body, m.first.TaskID+"/range-diff-") {
			return c.Body
		}
	}
	return ""
}

const resolveIt = `sed -i -e '/^<<<<<<<\|^=======\|^>>>>>>>/d' -e '/^two$/d' f
sed -i 's/^zwei$/zwei two/' f
git add f && git -c core.editor=true rebase --continue
`

var zwei = map[string]string{"f": strings.Replace(tenLines, "2\n", "zwei\n", 1)}

func TestRebaseClean(t *testing.T) {
	t.Parallel()
	m := newMoving(t, "touch agent-ran && git add -A && git commit -qm 'The agent ran'")
	tip := m.push("main", "Nine", map[string]string{"f": strings.Replace(tenLines, "9\n", "nine\n", 1)})
	c, r := m.rebase()
	x := r.Rebased
	if c.code != 0 || r.Status != workorder.StatusSuccess || x == nil || !x.Pushed || r.Agent.ExitCode != nil || r.BaseSHA != tip {
		t.Fatalf("exit code %d, %s: %s, %+v", c.code, r.Status, r.Reasons, x)
	}
	if m.head() != r.HeadSHA || r.HeadSHA == m.first.HeadSHA || m.ref(x.Backup) != m.first.HeadSHA {
		t.Errorf("head %s, backup %s", m.head(), m.ref(x.Backup))
	}
	if got := m.bare("log", "--format=%an %s", r.HeadSHA, "^"+tip); got != "Bea Greet\nsandbox-agent Change two" {
		t.Errorf("%q", got)
	}
	if m.bare("merge-base", tip, r.HeadSHA) != tip {
		t.Error("the head is not on the new base")
	}
	for _, commit := range x.Moved {
		if commit.How != workorder.RangeSame {
			t.Errorf("%+v", commit)
		}
	}
	if said := m.comment(); len(x.Moved) != 2 || !strings.Contains(said, "Greet") {
		t.Errorf("%d commits, the comment:\n%s", len(x.Moved), said)
	}
	if i, _ := m.forge.Issue(m.first.PR.Number); !strings.Contains(i.Body, x.Backup) {
		t.Errorf("the body:\n%s", i.Body)
	}
	// The next attempt starts from the new base; another machine has nothing to do.
	m.u.state = t.TempDir()
	counted.Of(m.u.state, t.Name())
	m.u.env = append(m.u.env, "SANDBOX_AGENT_STATE_DIR="+m.u.state)
	c, r = m.rebase()
	if c.code != 0 || r.Status != workorder.StatusNoChanges || r.Reasons.Code() != workorder.ReasonUnchanged || r.BaseSHA != tip || len(m.forge.Pulls()) != 1 {
		t.Errorf("exit code %d, %s: %s, base %s", c.code, r.Status, r.Reasons, r.BaseSHA)
	}
}

func TestRebaseUnresolved(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{"marks": "git add f && git -c core.editor=true rebase --continue"}
	if nightly {
		scripts["left"], scripts["skipped"], scripts["gave up"] = "true", "git rebase --skip", "exit 3"
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t, script)
			m.push("main", "Zwei", zwei)
			c, r := m.rebase()
			m.unmoved(c, r, workorder.ExitTaskFailed, workorder.StatusFailed, true)
			if m.comment() != "" || m.ref(r.Rebased.Backup) != "" && r.Rebased.Backup != "" {
				t.Errorf("%q, %+v", m.comment(), r.Rebased)
			}
		})
	}
}

// A clean merge that breaks the tests stays beside the branch.
func TestRebaseBreaksTests(t *testing.T) {
	t.Parallel()
	m := newMoving(t, "true")
	tip := m.push("main", "Rename", map[string]string{"lib.sh": "salute() { echo hello; }\n"})
	c, r := m.rebase()
	m.unmoved(c, r, workorder.ExitTaskFailed, workorder.StatusFailed, true)
	if r.EndedBy != workorder.EndedByValidation || r.Reasons.Code() != workorder.ReasonWorse {
		t.Errorf("%s: %s", r.EndedBy, r.Reasons)
	}
	if m.bare("merge-base", tip, m.ref(r.Rebased.Kept)) != tip {
		t.Error("what is kept is not on the new base")
	}
	if p := r.Proof; p == nil || p.Base != tip || len(p.Checks) != 1 || p.Checks[0].Transition != workorder.TransitionBroken {
		t.Errorf("proof %+v", r.Proof)
	}
}

func TestRebaseForeign(t *testing.T) {
	t.Parallel()
	m := newMoving(t, "echo agent-is-busy\nuntil git ls-remote --exit-code origin refs/heads/go >/dev/null; do sleep 0.2; done\n"+resolveIt)
	m.push("main", "Nine", map[string]string{"f": strings.Replace(tenLines, "9\n", "nine\n", 1)})
	theirs := m.push(m.first.Branch, "Theirs", map[string]string{"z": "z"})
	refusals := 1
	if nightly {
		refusals = 2 // being refused makes nothing known
	}
	for range refusals {
		c, r := m.rebase()
		if c.code != workorder.ExitGit || m.head() != theirs || !strings.Contains(r.Reasons.String(), "Theirs") || !strings.Contains(r.Reasons.String(), "Ann") {
			t.Errorf("exit code %d: %s", c.code, r.Reasons)
		}
	}
	c, r := m.rebase("--include-others")
	if c.code != 0 || r.Rebased == nil || !r.Rebased.Pushed || m.ref(r.Rebased.Backup) != theirs || m.bare("log", "-1", "--format=%an %s", m.head()) != "Ann Theirs" {
		t.Fatalf("exit code %d: %s, %+v", c.code, r.Reasons, r.Rebased)
	}
	if !nightly {
		return
	}
	// And while it is at it: pushes are made with the head that was seen (internal/guest/rootgit).
	before := m.head()
	m.push("main", "Zwei", map[string]string{"f": strings.NewReplacer("2\n", "zwei\n", "9\n", "nine\n").Replace(tenLines)})
	s := m.u.start("", "rebase", m.first.TaskID, "-p", m.project)
	s.waitFor("agent-is-busy")
	late := m.push(m.first.Branch, "Late", map[string]string{"y": "y"})
	m.bare("update-ref", "refs/heads/go", "main")
	c, r = s.wait(), m.u.plainResult(m.first.TaskID)
	if c.code != workorder.ExitGit || m.head() != late || r.HeadSHA != before || r.Rebased.Pushed || m.ref(r.Rebased.Kept) == "" {
		t.Errorf("exit code %d, %s: %s, head %s, %+v", c.code, r.Status, r.Reasons, r.HeadSHA, r.Rebased)
	}
}

// However the middle of a rebase ends, the branch is as it was, and another one goes through.
func TestRebaseIsCutOff(t *testing.T) {
	t.Parallel()
	hows := []string{"kill"}
	if nightly {
		hows = append(hows, "stop")
	}
	for _, how := range hows {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t, "if ! git ls-remote --exit-code origin refs/heads/go >/dev/null; then echo half >half; echo agent-is-busy; exec sleep 600; fi\n"+resolveIt)
			m.push("main", "Zwei", zwei)
			s := m.u.start("", "rebase", m.first.TaskID, "-p", m.project)
			s.waitFor("agent-is-busy")
			code, status := workorder.ExitInterrupted, workorder.StatusInterrupted
			if how == "kill" {
				w := &working{started: s, u: m.u, id: m.first.TaskID}
				if err := syscall.Kill(w.boot(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				code, status = workorder.ExitBox, workorder.StatusError
			} else if c := m.u.run("", "stop", m.first.TaskID); c.code != 0 {
				t.Errorf("stop: exit code %d", c.code)
			}
			c := s.wait()
			r := m.u.plainResult(m.first.TaskID)
			m.unmoved(c, r, code, status, true)
			beside := workorder.KeptRef(m.first.TaskID, "rebased-2")
			if m.bare("show", m.ref(beside)+":half") != "half" || m.ref(workorder.CheckpointRef(m.first.TaskID)) != "" {
				t.Error("what the agent had done is not kept beside the branch")
			}
			m.bare("update-ref", "refs/heads/go", "main")
			if c, r = m.rebase(); c.code != 0 || !r.Rebased.Pushed || r.HeadSHA != m.head() {
				t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
			}
		})
	}
}

// A repository on this machine is rebased as one on a server is.
func TestRebaseLocal(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"f": tenLines})
	project := u.project(scripted("validate: {there: test -f made}\n", "if [ \"$SANDBOX_AGENT_MODE\" = rebase ]; then exit 9; fi\necho made >made && git add made && git commit -qm 'Make it'"))
	c := u.run("", "create", "--task", "x", "--repo", repo, "-p", project)
	first := u.plainResult(c.task(t))
	gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "Main goes on")
	c = u.run("", "rebase", first.TaskID)
	r := u.plainResult(first.TaskID)
	if c.code != 0 || r.Rebased == nil || !r.Rebased.Pushed || gittest.Git(t, repo, "rev-parse", first.Branch+"~1") != gittest.Git(t, repo, "rev-parse", "main") || gittest.Git(t, repo, "rev-parse", r.Rebased.Backup) != first.HeadSHA {
		t.Errorf("exit code %d, %s: %s, %+v", c.code, r.Status, r.Reasons, r.Rebased)
	}
	step := slices.IndexFunc(r.Steps, func(s workorder.Step) bool { return s.Name == "range-diff" })
	if step < 0 || r.Steps[step].Status != workorder.StepSkipped {
		t.Errorf("steps %+v", r.Steps)
	}
}
