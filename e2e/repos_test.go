//go:build e2e

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// twoMore is a project on a remote with a further repository there, web, and one on this machine, api.
func twoMore(t *testing.T, script string) (u *user, project, app, api, web string) {
	t.Helper()
	srv := gittest.NewAt(t, keptToken, hostAddress(t))
	appURL, webURL := srv.Create(t, "app.git", map[string]string{"README": "app"}), srv.Create(t, "web.git", map[string]string{"README": "web"})
	u = newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+keptToken)
	api = u.repo(map[string]string{"a": "1"})
	project = u.project(scripted("repo: "+appURL+"\ncheckpoint_interval: 1s\nrepos:\n  api: "+api+"\n  web: {repo: "+webURL+", branch: main}\n", script))
	return u, project, filepath.Join(srv.Root, "app.git"), api, filepath.Join(srv.Root, "web.git")
}

func further(t *testing.T, r *workorder.Result, name string) workorder.RepoResult {
	t.Helper()
	for _, one := range r.Repos {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no repository %s in %+v", name, r.Repos)
	return workorder.RepoResult{}
}

// leftover is what a host copied out of a stopped sandbox.
func leftover(t *testing.T, path string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Each repository gets the task's branch with its own changes, a later attempt goes on in all, and rm forgets all.
func TestFurtherRepositories(t *testing.T) {
	t.Parallel()
	u, project, app, api, web := twoMore(t, `
test "$(cat api/a)" && test -f web/README && git -C web log -1 >/dev/null || exit 9
date +%N >made
cd api && date +%N >a && git commit -qam 'Change a' && date +%N >left
`)
	c := u.run("", "create", "--task", "x", "-p", project)
	r := u.plainResult(c.task(t))
	is := further(t, r, "api")
	if c.code != 0 || r.Status != workorder.StatusSuccess || !r.Pushed || !is.Pushed || is.Branch != r.Branch || len(is.Commits) != 2 {
		t.Fatalf("exit code %d, %s, %+v", c.code, r.Reasons, r.Repos)
	}
	if is := further(t, r, "web"); is.Pushed || len(is.Commits) > 0 {
		t.Errorf("%+v", is)
	}
	if got := gittest.Git(t, app, "ls-tree", "-r", "--name-only", r.Branch); got != "README\nmade" {
		t.Errorf("the task's own repository has %q", got)
	}
	if got := gittest.Git(t, api, "ls-tree", "-r", "--name-only", r.Branch); got != "a\nleft" {
		t.Errorf("api has %q", got)
	}
	if got := gittest.Git(t, api, "status", "--porcelain"); got != "" || gittest.Git(t, web, "for-each-ref", "refs/heads/agent/") != "" {
		t.Errorf("api's work tree: %q", got)
	}
	there := *u
	there.dir = api
	var l struct {
		Head    string            `json:"head"`
		Commits []json.RawMessage `json:"commits"`
	}
	if err := json.Unmarshal([]byte(there.run("", "log", "--json", r.TaskID).stdout), &l); err != nil || len(l.Commits) != 2 || l.Head != is.HeadSHA {
		t.Errorf("in api the log has %+v, %v", l, err)
	}
	if d := there.run("", "diff", r.TaskID); d.code != 0 || !strings.Contains(d.stdout, "+++ b/left") || strings.Contains(d.stdout, "b/made") {
		t.Errorf("in api the diff is %q, %s", d.stdout, d.stderr)
	}
	gittest.Git(t, api, "config", "user.name", "u")
	gittest.Git(t, api, "config", "user.email", "u@example.com")
	if m := there.run("", "merge", r.TaskID); m.code != 0 || gittest.Git(t, api, "ls-files") != "a\nleft" {
		t.Errorf("merge in api: %s", m.stderr)
	}
	gittest.Git(t, api, "reset", "-q", "--hard", is.BaseSHA)
	leftover(t, filepath.Join(u.state, r.TaskID, workorder.ArchiveFile), "api/lost", "mine")
	again := u.run("", "continue", r.TaskID, "--task", "and more")
	if got := gittest.Git(t, app, "ls-tree", "-r", "--name-only", r.Branch); got != "README\nmade\nmine" {
		t.Errorf("the next attempt has %q", got)
	}
	if is2 := further(t, u.plainResult(r.TaskID), "api"); again.code != 0 || len(is2.Commits) != 4 || is2.Commits[2] != is.Commits[0] {
		t.Errorf("exit code %d, %+v", again.code, is2)
	}
	// A rebase, and an attempt of a project that has one of them no more, leave it as it is, and known.
	u.run("", "rebase", r.TaskID)
	if is2 := further(t, u.plainResult(r.TaskID), "api"); len(is2.Commits) != 4 || !is2.Pushed {
		t.Errorf("after a rebase: %+v", is2)
	}
	yaml, err := os.ReadFile(project)
	if err == nil {
		err = os.WriteFile(project, []byte(strings.Replace(string(yaml), "  api: "+api+"\n", "", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.run("", "continue", r.TaskID, "--task", "without it")
	if is2 := further(t, u.plainResult(r.TaskID), "api"); len(is2.Commits) != 4 {
		t.Errorf("no longer in the project: %+v", is2)
	}
	if gone := u.run("", "rm", "--force", "--branch", r.TaskID); gone.code != 0 {
		t.Errorf("exit code %d: %s", gone.code, gone.stderr)
	}
	for _, dir := range []string{app, api, web} {
		if refs := gittest.Git(t, dir, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
			t.Errorf("%s has %q", dir, refs)
		}
	}
}

// A task that is stopped, or whose boot dies, lands in each repository.
func TestFurtherRepositoriesOfAnEndedTask(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*testing.T, *working){
		"stop": func(t *testing.T, w *working) {
			t.Helper()
			w.u.run("", "stop", w.id)
		},
		"boot dies": func(t *testing.T, w *working) {
			t.Helper()
			if err := syscall.Kill(w.boot(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			u, project, _, api, web := twoMore(t, "echo 2 >api/a; echo new >web/new; echo agent-is-busy; sleep 600\n")
			id := workorder.NewTaskID()
			w := &working{started: u.start("", "create", "--task", "x", "--task-id", id, "-p", project), u: u, id: id}
			w.waitFor("agent-is-busy")
			end(t, w)
			w.wait()
			r := u.plainResult(id)
			for name, dir := range map[string]string{"api": api, "web": web} {
				if is := further(t, r, name); !is.Pushed || len(is.Commits) != 1 || gittest.Git(t, dir, "rev-parse", is.Branch) != is.HeadSHA {
					t.Errorf("%s: %+v, %s", name, is, r.Reasons)
				}
			}
		})
	}
}

// Commits that a further remote refuses, and those of a killed sandbox, are kept as files, and what lands lands.
func TestFurtherRepositoryIsNotReached(t *testing.T) {
	t.Parallel()
	u, project, _, _, web := twoMore(t, "echo 2 >api/a; echo new >web/new; git -C web add -A; git -C web commit --allow-empty -qm New; date +%N >made; date +%N >api/b\n")
	hook := filepath.Join(web, "hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nwhile read -r old new ref; do case $ref in refs/heads/*) echo no; exit 1;; esac; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := u.run("", "create", "--task", "x", "-p", project)
	r := u.plainResult(c.task(t))
	bundle := filepath.Join(u.state, r.TaskID, workorder.ReposDir, "web", workorder.BundleFile)
	if !r.Pushed || !further(t, r, "api").Pushed || further(t, r, "web").Pushed || r.Status != workorder.StatusError || !r.Reasons.Has(workorder.ReasonPush) ||
		!strings.Contains(gittest.Git(t, web, "bundle", "list-heads", bundle), further(t, r, "web").HeadSHA) {
		t.Errorf("exit code %d, %s, %+v", c.code, r.Reasons, r.Repos)
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	again := u.run("", "continue", r.TaskID, "--task", "more")
	is := further(t, u.plainResult(r.TaskID), "web")
	if again.code != 0 || !is.Pushed || gittest.Git(t, web, "merge-base", "--is-ancestor", further(t, r, "web").HeadSHA, is.Branch) != "" {
		t.Errorf("the next attempt: exit code %d, %+v", again.code, is)
	}
}

func TestFurtherRepositoryOfAKilledSandbox(t *testing.T) {
	t.Parallel()
	u, project, _, _, web := twoMore(t, "sleep 3; cd web; echo new >new; git add -A; git commit -qm New; echo agent-is-busy; sleep 600\n")
	hook := filepath.Join(web, "hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nwhile read -r old new ref; do case $ref in refs/sandbox-agent/*/state|refs/sandbox-agent/*/alive) ;; *) exit 1;; esac; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := workorder.NewTaskID()
	s := u.start("", "create", "--task", "x", "--task-id", id, "-p", project)
	s.waitFor("agent-is-busy")
	boxes := ours(t, id)
	if len(boxes) != 1 {
		t.Fatalf("%d boxes", len(boxes))
	}
	if err := eng.ContainerKill(t.Context(), boxes[0].ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	s.wait()
	bundle := filepath.Join(u.state, id, workorder.ReposDir, "web", workorder.BundleFile)
	if heads := gittest.Git(t, web, "bundle", "list-heads", bundle); !strings.Contains(heads, "agent/"+id) {
		t.Errorf("%q", heads)
	}
}

// A repository that has a further one's directory itself ends the task before its agent starts.
func TestFurtherRepositoryHasNoPlace(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	app, api := u.repo(map[string]string{"api/x": "1"}), u.repo(map[string]string{"a": "1"})
	outside := t.TempDir()
	link := u.repo(map[string]string{"x": "1"})
	if err := os.Symlink(outside, filepath.Join(link, "api")); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, link, "add", "-A")
	gittest.Git(t, link, "commit", "-q", "-m", "link")
	for _, repo := range []string{app, link} {
		c := u.run("", "create", "--task", "x", "-p", u.project(scripted("repo: "+repo+"\nrepos: {api: "+api+"}\n", "echo x >y\n")))
		if c.code != workorder.ExitInvalid {
			t.Errorf("exit code %d", c.code)
		}
	}
	srv := gittest.NewAt(t, keptToken, hostAddress(t))
	remote := srv.Create(t, "app.git", map[string]string{"api/x": "1"})
	u = newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+keptToken)
	c := u.run("", "create", "--task", "x", "-p", u.project(scripted("repo: "+remote+"\nrepos: {api: "+api+"}\n", "echo x >y\n")))
	r := u.plainResult(c.task(t))
	if agent := r.Step(workorder.StepAgent); c.code == 0 || r.Status != workorder.StatusError || agent != nil && agent.Status == workorder.StepDone {
		t.Errorf("exit code %d, %s, %+v", c.code, r.Reasons, r.Steps)
	}
}
