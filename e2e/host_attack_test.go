//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// What a sandbox writes to a directory of this machine, git of this machine does not run.
func TestHostAttack(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.newRepo()
	canary := filepath.Join(t.TempDir(), "canary")
	for name, content := range map[string]string{".husky/pre-commit": "", "tools/clean.sh": "cat\n", "conf/git": "", "sub/keep": ""} {
		path := filepath.Join(repo, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "update-index", "--add", "--cacheinfo", "160000,"+gittest.Git(t, repo, "rev-parse", "HEAD")+",sub")
	gittest.Git(t, repo, "commit", "-qm", "a submodule")
	const owner = 54321
	reachable(t, repo)
	err := filepath.WalkDir(repo, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, owner, owner)
	})
	if err != nil {
		t.Skipf("only root gives directories away: %v", err)
	}
	set := func(key, value string) {
		gittest.Git(t, "", "config", "--file", filepath.Join(repo, ".git", "config"), key, value)
	}
	set("core.hooksPath", ".husky")
	set("include.path", "../conf/git")
	set("filter.x.clean", "sh ./tools/clean.sh")
	var rows []attackRow
	row := func(name string, through bool, got string) {
		rows = append(rows, attackRow{Group: "git on this machine", Name: name, Expected: "refused", Got: got, Through: through, OK: !through})
	}
	w := u.claim(fmt.Sprintf("host-%d", os.Getpid()))
	if c := u.run("", "up", w, "--runtime", "jail", "--workspace", ".", "--network", "none"); c.code != 0 {
		t.Fatalf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("", "exec", w, "--", "sh", "-c", "echo x >own"); c.code != 0 { // control
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	for name, script := range map[string]string{
		"write a hook to which core.hooksPath leads":       "echo x >.husky/pre-commit || echo x >.husky/post-commit",
		"put another directory in the place of the hooks":  "mv .husky x && mkdir .husky",
		"write a file of settings that include.path names": "echo x >conf/git",
		"replace a file of settings":                       "rm conf/git && echo x >conf/git",
		"write a filter":                                   "echo x >tools/clean.sh",
		"move the directory of a filter away":              "mv tools x",
		"make a repository in the place of a submodule":    "mkdir sub/.git",
		"replace the place of a submodule":                 "mv sub x",
	} {
		c := u.run("", "exec", w, "--", "sh", "-c", script)
		row(name, c.code == 0, strings.TrimSpace(c.stderr))
	}
	if c := u.run("", "down", w); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	gittest.Git(t, "", "config", "--file", filepath.Join(repo, ".git", "config"), "--unset", "filter.x.clean")
	tree := u.claim(fmt.Sprintf("host-tree-%d", os.Getpid()))
	u.env = append(u.env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	if err := os.Lchown(filepath.Join(repo, ".git"), os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(repo, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if c := u.run("", "up", tree, "--runtime", "jail", "--git-worktree", ".", "--network", "none"); c.code != 0 {
		t.Fatalf("exit code %d: %s", c.code, c.stderr)
	}
	if c := u.run("", "exec", tree, "--", "sh", "-c", "mkdir -p .husky; printf '#!/bin/sh\\necho >>"+canary+"\\n' >.husky/post-index-change; chmod +x .husky/post-index-change; echo 2 >f"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
	status := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "status", "--short")
	status.Dir = filepath.Join(u.state, "worktrees", tree, "tree")
	out, err := status.CombinedOutput()
	_, ran := os.Stat(canary)
	row("a hook in a worktree runs", ran == nil || err != nil, strings.TrimSpace(string(out)))
	checkRows(t, "jail", rows)
}
