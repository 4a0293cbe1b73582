//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// newRepo is a repository of the user's, in which they are.
func (u *user) newRepo() string {
	u.t.Helper()
	repo := filepath.Join(u.t.TempDir(), "repo")
	gittest.Git(u.t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(u.t, repo, "config", "user.name", "Ada")
	gittest.Git(u.t, repo, "config", "user.email", "ada@example.com")
	if err := os.WriteFile(filepath.Join(repo, "f"), []byte("1\n"), 0o644); err != nil {
		u.t.Fatal(err)
	}
	gittest.Git(u.t, repo, "add", ".")
	gittest.Git(u.t, repo, "commit", "-qm", "base")
	u.dir = repo
	return repo
}

// What commands change in a sandbox of any kind is commits of its branch, which the user merges, applies and checks out.
func TestBranch(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"jail", "container", "box"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.newRepo()
			ok := func(code int, args ...string) call {
				t.Helper()
				c := u.run("", args...)
				if c.code != code {
					t.Errorf("%q: exit code %d, not %d: %s", args, c.code, code, c.stderr)
				}
				return c
			}
			e := u.claim(fmt.Sprintf("e-%s-%d", kind, os.Getpid()))
			up := []string{"up", e, "--repo", ".", "--runtime", kind, "--title", "a title"}
			if kind == "container" {
				up = append(up, "--image", strings.TrimSpace(u.run("", "image", "build").stdout))
			}
			if err := os.WriteFile(filepath.Join(repo, "dirty"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			ok(0, up...)
			count := func(want int) {
				t.Helper()
				if got := gittest.Git(t, repo, "rev-list", "--count", "main..sandbox/"+e); got != strconv.Itoa(want) {
					t.Errorf("%s commits, not %d", got, want)
				}
			}
			count(1)
			ok(1, "exec", e, "--", "test", "-e", "dirty")
			ok(3, "exec", e, "--", "sh", "-c", "pwd; echo 2 >f; echo x >'a b'; exit 3")
			count(2)
			if got := gittest.Git(t, repo, "log", "-1", "--format=%an|%s", "sandbox/"+e); got != "Ada|cmd: pwd; echo 2 >f; echo x >'a b'; exit 3" {
				t.Error(got)
			}
			ok(0, "exec", e, "--", "true")
			count(2)
			log := jsonOf[[]struct {
				Ran []struct {
					Command string
					Code    int `json:"exit_code"`
				}
			}](u, "log", e)
			if len(log) != 2 || len(log[0].Ran) != 2 || log[0].Ran[0].Code != 3 || log[0].Ran[1].Command != "true" {
				t.Errorf("%+v", log)
			}
			if c := ok(0, "diff", e, "--name-only"); c.stdout != "a b\nf\n" {
				t.Errorf("%q", c.stdout)
			}
			ok(0, "merge")
			if got := gittest.Git(t, repo, "show", "HEAD:f"); got != "2" {
				t.Error(got)
			}
			ok(0, "merge", e)
			// What a command of the background has changed is in a merge, after which the sandbox may be deleted.
			ok(0, "exec", e, "--background", "--", "sh", "-c", "echo 1 >late")
			time.Sleep(300 * time.Millisecond)
			ok(0, "merge", e)
			if got := gittest.Git(t, repo, "show", "HEAD:late"); got != "1" {
				t.Error(got)
			}
			ok(0, "exec", e, "--", "sh", "-c", "rm 'a b'; echo 3 >f")
			ok(0, "apply", e)
			if got := gittest.Git(t, repo, "diff", "--cached", "--name-status"); got != "D\ta b\nM\tf" {
				t.Error(got)
			}
			gittest.Git(t, repo, "reset", "-q", "--hard")
			ok(0, "checkout", e, "-b", "try")
			gittest.Git(t, repo, "switch", "-q", "main")
			if kind == "container" { // without the engine nothing is gone
				env := u.env
				u.env = append(slices.Clone(env), "DOCKER_HOST=unix:///no/such/socket")
				for _, args := range [][]string{{"list"}, {"list", "--json"}, {"ps"}, {"up", e + "-2", "--image", "x"}} {
					ok(5, args...)
				}
				u.env = env
			}
			ok(0, "down", e)
			count(1) // of three, the two of before are merged
			list := jsonOf[[]struct{ Name, Title, State string }](u, "list")
			if len(list) != 1 || list[0].Name != e || list[0].Title != "a title" || list[0].State != "gone" {
				t.Errorf("%+v", list)
			}
			ok(64, "delete")
			ok(2, "delete", "none")
			// Also where an engine does not answer: nothing is kept of it, but its branch.
			env := u.env
			u.env = append(slices.Clone(env), "DOCKER_HOST=unix:///no/such/socket")
			ok(0, "delete", e) // its commits are on the branch try
			u.env = env
			if got := gittest.Git(t, repo, "for-each-ref", "--format=%(refname)", "refs/remotes"); got != "" {
				t.Error(got)
			}
			ok(2, "log", e)
			if _, err := os.Stat(filepath.Join(repo, "dirty")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A sandbox that others have removed is made anew with its commits, and its branch goes on.
func TestBranchGone(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	e := u.claim(fmt.Sprintf("e-gone-%d", os.Getpid()))
	ok := func(args ...string) string {
		t.Helper()
		c := u.run("", args...)
		if c.code != 0 {
			t.Errorf("%q: exit code %d: %s", args, c.code, c.stderr)
		}
		return c.stdout
	}
	ok("up", e, "--repo", ".", "--runtime", "container", "--image", strings.TrimSpace(ok("image", "build")))
	ok("exec", e, "--", "sh", "-c", "echo 2 >f")
	if err := eng.ContainerRemove(t.Context(), "sandbox-agent-sandbox-"+e, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		t.Fatal(err)
	}
	if got := ok("exec", e, "--", "sh", "-c", "cat f; echo 3 >>f"); got != "2\n" {
		t.Errorf("%q", got)
	}
	if got := gittest.Git(t, repo, "log", "--format=%s", "main..sandbox/"+e); strings.Count(got, "\n") != 2 {
		t.Error(got)
	}
}

// A clone that is made anew begins again, a conflict stays in the files, and what is not the user's alone is refused.
func TestBranchCorners(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	ok := func(code int, args ...string) {
		t.Helper()
		if c := u.run("", args...); c.code != code {
			t.Errorf("%q: exit code %d, not %d: %s", args, c.code, code, c.stderr)
		}
	}
	// unsaved makes a file in a jail's clone that no command has made, and so none saves.
	unsaved := func(name, file string) string {
		t.Helper()
		clone, err := filepath.Glob(filepath.Join(u.state, "sandboxes", name, "*", "f"))
		if err != nil || len(clone) != 1 {
			t.Fatalf("%q, %v", clone, err)
		}
		path := filepath.Join(filepath.Dir(clone[0]), file)
		if err := os.WriteFile(path, []byte("2\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ok(0, "up", "e", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "--", "sh", "-c", "echo 2 >f") // the one that stands on what is checked out
	before := gittest.Git(t, repo, "rev-parse", "sandbox/e")
	// Nothing is destroyed that cannot be saved.
	ok(0, "exec", "e", "--", "sh", "-c", "mkdir p; echo 1 >p/s; chmod 0 p")
	ok(1, "reset", "e")
	ok(1, "down", "e")
	ok(0, "exec", "e", "--", "sh", "-c", "chmod 700 p; rm -r p")
	ok(0, "reset", "e")
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/e"); got != "" {
		t.Errorf("after a reset: %s", got)
	}
	ok(0, "exec", "e", "--", "sh", "-c", "echo 3 >f")
	if got := gittest.Git(t, repo, "rev-list", "--count", "main..sandbox/e"); got != "2" {
		t.Error(got)
	}
	ours := gittest.Git(t, repo, "remote", "get-url", "sandbox")
	gittest.Git(t, ours, "merge-base", "--is-ancestor", before, before)
	if got := gittest.Git(t, ours, "for-each-ref", "--points-at="+before, "--format=%(refname:strip=2)", "refs/sandbox-agent/earlier/e"); !strings.HasPrefix(got, "earlier/e/") {
		t.Error(got)
	}
	// Work that cannot be saved is neither left out of a merge nor merged in part.
	late := unsaved("e", "unsaved")
	lock := filepath.Join(ours, "refs/heads/e.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"merge", "apply", "checkout"} {
		ok(1, verb, "e")
	}
	if err := errors.Join(os.Remove(lock), os.Remove(late)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "f"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo, "commit", "-qam", "mine")
	ok(7, "apply", "e")
	ok(7, "merge", "e", "-d")
	if got := gittest.Git(t, repo, "status", "--porcelain"); got != "UU f" {
		t.Error(got)
	}
	gittest.Git(t, repo, "merge", "--abort")
	ok(0, "log", "e")
	for _, ref := range []string{"--upload-pack=x", "../../x", "none"} {
		if c := u.run("", "up", "x", "--repo", ".", "--runtime", "jail", "--from-ref="+ref); c.code == 0 {
			t.Errorf("%s is a branch", ref)
		}
	}
	ok(0, "delete", "--force", "e")
	// What no command has committed is not lost where the sandbox has ended, and the work tree that one is in is merged into.
	ok(0, "up", "m", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "m", "--background", "--", "sh", "-c", "echo precious >bg")
	for range 100 {
		if u.run("", "exec", "m", "--", "test", "-s", "bg").code == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ok(0, "cp", "f", "m:/workspace/copied")
	ok(0, "stop", "m")
	wt := filepath.Join(t.TempDir(), "wt")
	gittest.Git(t, repo, "worktree", "add", "-q", wt)
	before = gittest.Git(t, repo, "rev-parse", "main")
	u.dir = wt
	ok(0, "merge", "m", "-d")
	if got := gittest.Git(t, wt, "ls-files", "bg", "copied"); got != "bg\ncopied" || gittest.Git(t, repo, "rev-parse", "main") != before {
		t.Errorf("%q", got)
	}
	u.dir = repo
	// A reader that leaves ends the command, and loses nothing of it.
	ok(0, "up", "p", "--repo", ".", "--runtime", "jail")
	piped := exec.CommandContext(t.Context(), "sh", "-c", `"$0" exec p -- sh -c "echo 1 >piped; yes" | head -n 1`, bin)
	piped.Dir, piped.Env = u.dir, u.env
	if out, err := piped.CombinedOutput(); string(out) != "y\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	last := ""
	for range 100 { // sh does not wait for it
		if last = gittest.Git(t, repo, "log", "-1", "--format=%s", "sandbox/p"); strings.HasPrefix(last, "cmd: ") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := gittest.Git(t, repo, "ls-tree", "--name-only", "sandbox/p", "piped"); got != "piped" {
		t.Errorf("%q, %s", got, last)
	}
	ok(1, "delete", "p") // its commits are nowhere else
	ok(0, "delete", "--force", "p")
	// What cannot be saved keeps the sandbox.
	ok(0, "up", "h", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "h", "--", "sh", "-c", `d="hfs/.g$(printf "\342\200\214")it"; mkdir -p "$d"; echo 1 >"$d/config"; echo 1 >work`)
	ok(1, "down", "h")
	ok(0, "exec", "h", "--", "grep", "1", "work")
	// By force nothing is saved first.
	unsaved("h", "late")
	ok(0, "down", "--force", "h")
	if got := gittest.Git(t, repo, "ls-tree", "--name-only", "sandbox/h", "late"); got != "" {
		t.Errorf("%s was saved", got)
	}
	ok(0, "up", "l", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "l", "--", "truncate", "-s", "11M", "large")
	for _, line := range [][]string{{"apply", "l", "-d"}, {"down", "l"}, {"delete", "l"}, {"reset", "l"}} {
		ok(0, "stop", "l")
		ok(1, line...)
		if c := u.run("", "inspect", "l"); c.code != 0 || !strings.Contains(c.stdout, `"state": "stopped"`) { // as it was
			t.Errorf("after %q: %s%s", line, c.stdout, c.stderr)
		}
	}
	ok(0, "delete", "--force", "l")
	gittest.Git(t, repo, "config", "remote.sandbox.url", "https://example.com/other")
	ok(0, "up", "e2", "--repo", ".", "--runtime", "jail") // told, and the user's remote stays
	if got := gittest.Git(t, repo, "remote", "get-url", "sandbox"); got != "https://example.com/other" {
		t.Error(got)
	}
	ok(0, "delete", "--all", "--force")
}

// Two repositories may each have a branch of one name: what is said in one never touches the other's.
func TestBranchOfTheSameName(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	ok := func(code int, args ...string) {
		t.Helper()
		if c := u.run("", args...); c.code != code {
			t.Errorf("%q: exit code %d, not %d: %s", args, c.code, code, c.stderr)
		}
	}
	shows := func(repo, want string) {
		t.Helper()
		if got := gittest.Git(t, repo, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/remotes"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	a := u.newRepo()
	ok(0, "up", "e", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "e", "--", "sh", "-c", "echo a >f")
	ok(0, "down", "e")
	b := u.newRepo()
	ok(0, "up", "e", "--repo", ".", "--runtime", "jail")
	ok(0, "exec", "e", "--", "sh", "-c", "echo b >f")
	u.dir = a
	states := map[string]string{}
	for _, i := range jsonOf[[]struct{ Repo, State string }](u, "list", "--all") {
		states[i.Repo] = i.State
	}
	if len(states) != 2 || states[a] != "gone" || states[b] != "running" {
		t.Errorf("%v", states)
	}
	// The branch here is merged and deleted, and the sandbox that runs is the other's.
	ok(0, "merge", "e", "-d")
	shows(a, "")
	shows(b, "sandbox/e")
	ok(0, "exec", "e", "--", "grep", "b", "f")
	// The branch of one that is gone is pruned, and not that of one that runs.
	ok(0, "down", "e")
	ok(0, "up", "e", "--repo", ".", "--runtime", "jail")
	shows(a, "sandbox/e")
	ok(1, "prune", "--older-than", "0h")
	shows(b, "sandbox/e")
	ok(0, "prune", "--older-than", "0h", "--force")
	shows(a, "sandbox/e")
	shows(b, "")
	ok(0, "apply", "e", "-d")
	shows(a, "")
	ok(2, "exec", "e", "--", "true")
}

// Submodules are there, of what is checked out here; one that is not is told and keeps nothing from working.
func TestBranchSubmodules(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	inner := newUser(t).newRepo()
	repo := u.newRepo()
	for _, name := range []string{"sub mod", "gone"} {
		gittest.Git(t, repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, name)
	}
	gittest.Git(t, repo, "commit", "-qm", "submodules")
	gittest.Git(t, repo, "submodule", "--quiet", "deinit", "-f", "gone")
	c := u.run("", "up", "e", "--repo", ".", "--runtime", "jail")
	if c.code != 0 || !strings.Contains(c.stderr, "gone") {
		t.Fatalf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("x", "cp", "f", "e:/workspace/sub mod/copied"); c.code != 0 || !strings.Contains(c.stderr, "sub mod/copied") {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("", "exec", "e", "--", "sh", "-c", "cat 'sub mod/f'; rm sub*/copied; git status --porcelain; echo 2 >'sub mod/f'; echo 2 >f"); c.code != 0 || c.stdout != "1\n" || !strings.Contains(c.stderr, "sub mod/f") {
		t.Errorf("exit code %d, %q: %s", c.code, c.stdout, c.stderr)
	}
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/e"); got != "f" {
		t.Error(got)
	}
	// A title makes an unused name, from any commit.
	if err := os.WriteFile(filepath.Join(repo, "dirty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := gittest.Git(t, repo, "rev-parse", "--short", "HEAD~1")
	for _, ref := range []string{first, "HEAD~1"} {
		if c := u.run("", "up", "--title", "Old One", "--from-ref", ref, "--runtime", "jail"); c.code != 0 || !strings.Contains(c.stderr, "dirty") {
			t.Errorf("exit code %d: %s", c.code, c.stderr)
		}
	}
	if c := u.run("", "exec", "old-one-2", "--", "test", "-e", ".gitmodules"); c.code != 1 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	// Other settings keep the work, and can be written to the project file.
	if c := u.run("", "exec", "old-one", "--", "sh", "-c", "echo 1 >kept; echo 1 >/tmp/lost"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("", "update", "old-one", "-e", "X=new", "--cpus", "1"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("", "exec", "old-one", "--", "sh", "-c", "echo $X; ls kept /tmp/lost"); c.code != 2 || c.stdout != "new\nkept\n" {
		t.Errorf("exit code %d, %q: %s", c.code, c.stdout, c.stderr)
	}
	if c := u.run("", "project", "import", "old-one", "--print"); c.code != 0 || !strings.Contains(c.stdout, "\n  X: new\n") {
		t.Errorf("exit code %d: %s%s", c.code, c.stdout, c.stderr)
	}
	if c := u.run("", "delete", "--force", "e", "old-one", "old-one-2"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}

// Ten sandboxes of one repository work at once.
func TestBranchesAtOnce(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	const ten = 10
	var all sync.WaitGroup
	for i := range ten {
		all.Go(func() {
			name := "e" + strconv.Itoa(i)
			for _, args := range [][]string{
				{"up", name, "--repo", ".", "--runtime", "jail"},
				{"exec", name, "--", "sh", "-c", "echo " + name + " >f"},
				{"exec", name, "--", "sh", "-c", "echo " + name + " >g"},
			} {
				if c := u.run("", args...); c.code != 0 {
					t.Errorf("%q: exit code %d: %s", args, c.code, c.stderr)
				}
			}
		})
	}
	all.Wait()
	for i := range ten {
		name := "e" + strconv.Itoa(i)
		if got := gittest.Git(t, repo, "rev-list", "--count", "main..sandbox/"+name); got != "3" {
			t.Errorf("%s: %s commits", name, got)
		}
		if got := gittest.Git(t, repo, "show", "sandbox/"+name+":g"); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
	gittest.Git(t, repo, "fsck", "--strict")
	if c := u.run("", "delete", "--all", "--force"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}
