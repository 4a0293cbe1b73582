//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A folder of the user's to work in: what is written is the user's, and their repository is not the sandbox's to change.
func TestWorkspace(t *testing.T) {
	t.Parallel()
	image := strings.TrimSpace(newUser(t).run("", "image", "build").stdout)
	for kind, more := range map[string][]string{"jail": nil, "container": {"--image", image}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.newRepo()
			gittest.Git(t, "", "clone", "-q", repo, filepath.Join(repo, "libs", "sub"))
			gittest.Git(t, repo, "add", "libs/sub")
			gittest.Git(t, repo, "commit", "-qm", "a repository in it")
			const owner = 54321
			reachable(t, repo)
			for _, dir := range []string{repo, filepath.Join(repo, "libs"), filepath.Join(repo, "libs", "sub"), filepath.Join(repo, "libs", "sub", ".git", "hooks")} {
				if err := os.Chown(dir, owner, owner); err != nil {
					t.Skipf("only root gives folders away: %v", err)
				}
			}
			gittest.Git(t, "", "config", "--file", filepath.Join(repo, ".git", "config"), "core.fsmonitor", "false")
			e := u.claim(fmt.Sprintf("work-%s-%d", kind, os.Getpid()))
			if kind == "container" {
				more = append(more, "--user", fmt.Sprintf("%d:%d", owner, owner))
			}
			if c := u.run("", append([]string{"up", e, "--runtime", kind, "--workspace", "."}, more...)...); c.code != 0 {
				t.Fatalf("exit code %d: %s", c.code, c.stderr)
			}
			config, err := os.ReadFile(filepath.Join(repo, ".git", "config"))
			if err != nil {
				t.Fatal(err)
			}
			c := u.run("", "exec", e, "--", "sh", "-c", `pwd; git log --oneline | wc -l; echo x >'a b'; echo y >.git/hooks/post-commit; git config core.fsmonitor evil; git config core.hooksPath /tmp; rm -rf .git; mv .git g; ln -sfn /tmp .git; git status --short`)
			if !strings.HasPrefix(c.stdout, "/workspace\n2\n") || !strings.Contains(c.stdout, `?? "a b"`) {
				t.Errorf("%q: %s", c.stdout, c.stderr)
			}
			st, err := os.Stat(filepath.Join(repo, "a b"))
			if err != nil || uidOf(st) != owner {
				t.Errorf("%v, %v", st, err)
			}
			after, err := os.ReadFile(filepath.Join(repo, ".git", "config"))
			if err != nil || string(after) != string(config) {
				t.Errorf("the user's configuration has changed: %v", err)
			}
			if hooks, err := filepath.Glob(filepath.Join(repo, ".git", "hooks", "post-commit")); err != nil || len(hooks) > 0 {
				t.Errorf("%v, %v", hooks, err)
			}
			// Nor is one below it, which the user's git would ask, nor can another be put in its place.
			if c := u.run("", "exec", e, "--", "sh", "-c", `for d in libs libs/sub libs/sub/.git; do mv $d x && echo moved; done; touch libs/sub/.git/hooks/x && echo written; touch libs/sub/new && echo new`); c.stdout != "new\n" {
				t.Errorf("%q: %s", c.stdout, c.stderr)
			}
			if _, err := os.Stat(filepath.Join(repo, "libs", "sub", ".git", "hooks", "x")); err == nil {
				t.Error("a hook is there")
			}
			// One that the sandbox makes is named once it has ended.
			u.run("", "exec", e, "--", "git", "init", "-q", "made")
			made, err := filepath.EvalSymlinks(repo)
			if err != nil {
				t.Fatal(err)
			}
			made = filepath.Join(made, "made", ".git")
			var stopped struct {
				NewRepositories []string `json:"new_repositories"`
			}
			if c := u.run("", "stop", e, "--json"); json.Unmarshal([]byte(c.stdout), &stopped) != nil || !slices.Contains(stopped.NewRepositories, made) {
				t.Errorf("exit code %d, %s", c.code, c.stdout)
			}
			if c := u.run("", "down", e); c.code != 0 || !strings.Contains(c.stderr, made) {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			two := u.claim(fmt.Sprintf("two-%s-%d", kind, os.Getpid()))
			for _, wrong := range [][]string{{".", "a=."}, {"/no/such"}, {"f"}} {
				args := append([]string{"up", two, "--runtime", kind}, more...)
				for _, w := range wrong {
					args = append(args, "--workspace", w)
				}
				if c := u.run("", args...); c.code != 64 {
					t.Errorf("%q: exit code %d", wrong, c.code)
				}
			}
			if c := u.run("", append([]string{"up", two, "--runtime", kind, "--workspace", "one=.:ro", "--workspace", "two=" + t.TempDir()}, more...)...); c.code != 0 {
				t.Fatalf("exit code %d: %s", c.code, c.stderr)
			}
			if c := u.run("", "exec", two, "--", "sh", "-c", "ls; touch one/x"); c.code == 0 || c.stdout != "one\ntwo\n" {
				t.Errorf("exit code %d, %q", c.code, c.stdout)
			}
			if c := u.run("", "down", two); c.code != 0 {
				t.Errorf("exit code %d", c.code)
			}
		})
	}
}

func uidOf(st os.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Uid) }

// A real worktree of the user's: git works in it, its commits are on a branch of theirs, and hooks, settings and other branches are out of reach.
func TestWorktree(t *testing.T) {
	t.Parallel()
	image := strings.TrimSpace(newUser(t).run("", "image", "build").stdout)
	for kind, more := range map[string][]string{"jail": nil, "container": {"--image", image}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.newRepo()
			reachable(t, u.state)
			e := u.claim(fmt.Sprintf("tree-%s-%d", kind, os.Getpid()))
			template := filepath.Join(t.TempDir(), "tpl.yaml")
			if err := os.WriteFile(template, []byte("name: tpl\nharness: {name: command, command: [sleep, '1000']}\nenv: {OF_TEMPLATE: there}\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			up := append([]string{"up", e, "--runtime", kind, "--git-worktree", ".", "--project", template}, more...)
			if c := u.run("", append(up, "--repo", ".")...); c.code != workorder.ExitUsage {
				t.Errorf("a worktree and a clone: exit code %d", c.code)
			}
			gittest.Git(t, repo, "branch", "sandbox-"+e)
			if c := u.run("", up...); c.code == 0 {
				t.Error("a branch of the user's is taken over")
			}
			gittest.Git(t, repo, "branch", "-D", "sandbox-"+e)
			taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(taken.Addr().String())
			if c := u.run("", append(up, "--port", port+":80")...); c.code != workorder.ExitPort {
				t.Errorf("a port in use: exit code %d: %s", c.code, c.stderr)
			}
			taken.Close()
			if c := u.run("", up...); c.code != 0 { // nothing is left of the failed one
				t.Fatalf("exit code %d: %s", c.code, c.stderr)
			}
			config, err := os.ReadFile(filepath.Join(repo, ".git", "config"))
			if err != nil {
				t.Fatal(err)
			}
			c := u.run("", "exec", e, "--", "sh", "-c", `test $OF_TEMPLATE = there && git -C /workspace status --porcelain && git log --format=%s && echo 2 >f && git commit -qam own && echo 3 >f &&
git config core.fsmonitor evil; git config core.hooksPath /tmp; echo x >.git; mv .git y; rm -f /workspace.objects/??/* 2>/dev/null; for d in .git/hooks /workspace.git/hooks; do mkdir -p $d && echo '#!/bin/sh' >$d/post-commit; done; true`)
			if c.code != 0 || c.stdout != "base\n" {
				t.Errorf("exit code %d, %q: %s", c.code, c.stdout, c.stderr)
			}
			if got := gittest.Git(t, repo, "show", "sandbox-"+e+":f"); got != "3" {
				t.Errorf("%q: %s", got, c.stderr)
			}
			if got := gittest.Git(t, repo, "rev-parse", "sandbox-"+e); got != gittest.Git(t, repo, "rev-parse", "sandbox/"+e) {
				t.Error(got)
			}
			after, err := os.ReadFile(filepath.Join(repo, ".git", "config"))
			if err != nil || string(after) != string(config) {
				t.Errorf("the user's configuration has changed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(repo, ".git", "hooks", "post-commit")); err == nil {
				t.Error("the user has a hook of the sandbox's")
			}
			gittest.Git(t, repo, "fsck", "--strict")
			if got := gittest.Git(t, repo, "show", "main:f"); got != "1" {
				t.Error(got)
			}
			if c := u.run("", "start", e, "--detach"); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			tree := filepath.Join(u.state, "worktrees", e, "tree")
			if got := gittest.Git(t, tree, "-c", "safe.directory=*", "status", "--porcelain"); strings.Contains(got, ".claude") {
				t.Errorf("git of this machine sees the briefing: %q", got)
			}
			// A save that was killed before the branch moved is made good by the next one.
			gittest.Git(t, repo, "update-ref", "refs/heads/sandbox-"+e, "sandbox/"+e+"^")
			if c := u.run("", "exec", e, "--", "true"); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			if got := gittest.Git(t, repo, "show", "sandbox-"+e+":f"); got != "3" {
				t.Error(got)
			}
			// A repository that the sandbox makes in the tree, a submodule or not, is none that the user's git asks.
			sprung := filepath.Join(t.TempDir(), "sprung")
			own := "git -c user.name=x -c user.email=x commit -qm x && git config core.fsmonitor 'touch " + sprung + "; false'"
			if c := u.run("", "exec", e, "--", "sh", "-c", "git config -f .gitmodules submodule.sub.path sub && for d in sub nested; do (git init -q $d && cd $d && echo 1 >in && git add in && "+own+") || exit; done"); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			if got := gittest.Git(t, repo, "show", "sandbox-"+e+":nested/in"); got != "1" {
				t.Errorf("%q", got)
			}
			if got := gittest.Git(t, repo, "ls-tree", "sandbox-"+e, "sub"); !strings.HasPrefix(got, "160000 ") {
				t.Errorf("%q", got)
			}
			gittest.Git(t, tree, "-c", "safe.directory=*", "status")
			if _, err := os.Stat(sprung); err == nil {
				t.Error("git status in the tree runs what the sandbox wants")
			}
			if c := u.run("", "exec", e, "--background", "--", "sh", "-c", "rm -rf sub; echo 4 >f"); c.code != 0 {
				t.Errorf("exit code %d", c.code)
			}
			time.Sleep(300 * time.Millisecond)
			if c := u.run("", "down", e); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
			if got := gittest.Git(t, repo, "show", "sandbox-"+e+":f"); got != "4" {
				t.Errorf("what was not committed is lost: %q", got)
			}
			if got := gittest.Git(t, repo, "worktree", "list"); strings.Contains(got, "\n") {
				t.Error(got)
			}
			if c := u.run("", "delete", "--force", e); c.code != 0 {
				t.Errorf("exit code %d: %s", c.code, c.stderr)
			}
		})
	}
}

// reachable lets other users into a directory of a test. What is above the tests' own directories keeps its mode: it is the machine's.
func reachable(t *testing.T, dir string) {
	t.Helper()
	for ; len(dir) > len(filepath.Clean(os.TempDir())); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
