package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// The briefing has the checks of the project, or those found in the repository.
// Docs: docs/branches.md
func TestBriefedChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repo := filepath.Join(dir, "repo")
	gittest.Git(t, "", "init", "-q", repo)
	write(t, filepath.Join(repo, "go.mod"), "module m\n")
	write(t, filepath.Join(repo, "m_test.go"), "package m\n")
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "base")
	g := (&Env{Dir: dir, Getenv: func(name string) string { return map[string]string{"HOME": dir}[name] }}).Agents()
	none, own := filepath.Join(dir, "none.yaml"), filepath.Join(dir, "own.yaml")
	write(t, none, "name: none\n")
	write(t, own, "name: own\nvalidate: {own: make}\n")
	for file, want := range map[string]string{"": "test", none: "test", own: "own"} {
		p, err := g.project(t.Context(), sandbox.Spec{Repo: repo, Project: file}, false)
		if err != nil || len(p.Validate) == 0 || p.Validate[0].Name != want {
			t.Errorf("%s: %+v, %v", file, p.Validate, err)
		}
	}
}

// The briefing is where git does not see it, wherever commands begin, and nothing is written through a link.
func TestBriefScript(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		setup, begin string // in the work tree
		home         bool   // that has it then
	}{
		"the work tree": {"true", ".", false},
		"below it":      {"true", "sub", false},
		"a folder":      {"mkdir .claude", ".", false},
		"a link":        {"ln -s sub .claude", ".", true},
		"a link below":  {"mkdir .claude; ln -s ../sub/f .claude/sandbox-agent.md", ".", true},
		"a file":        {"touch .claude", "sub", true},
		"a linked tree": {"git init -q --separate-git-dir=../git", "sub", false},
		"no repository": {"rm -rf .git", "sub", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			home, tree := filepath.Join(top, "home"), filepath.Join(top, "tree")
			sh := func(script string, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "sh", slices.Concat([]string{"-c", script, "sh"}, args)...)
				cmd.Dir, cmd.Env, cmd.Stdin = tree, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, strings.NewReader("told")
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return strings.TrimSpace(string(out))
			}
			for _, dir := range []string{home, filepath.Join(tree, "sub")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			gittest.Git(t, "", "init", "-q", tree)
			sh("echo x >sub/f; " + row.setup)
			before := sh("git status --porcelain -uall 2>/dev/null || :")
			begin := filepath.Join(tree, row.begin)
			for range 2 {
				file := sh(briefScript, begin, branch.BriefingFile)
				want := tree
				if row.home {
					want = home
				} else if name == "no repository" {
					want = begin
				}
				if file != filepath.Join(want, branch.BriefingFile) {
					t.Errorf("it is %s", file)
				}
				if b, err := os.ReadFile(file); err != nil || string(b) != "told" {
					t.Errorf("%q, %v", b, err)
				}
			}
			if after := sh("git status --porcelain -uall 2>/dev/null || :"); after != before {
				t.Errorf("git sees %q", after)
			}
			if name == "a linked tree" {
				if after := sh("rm ../git/info/exclude; git status --porcelain -uall"); after != before {
					t.Errorf("git outside sees %q", after)
				}
			}
			if b := sh("cat sub/f"); b != "x" {
				t.Errorf("written through a link: %q", b)
			}
		})
	}
}

// A program's way to its models is a login in the home folder, or one of the variables.
func TestKeyScript(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, "dir", "login.json"), "{}")
	write(t, filepath.Join(home, "dir", "empty.json"), "")
	for name, row := range map[string]struct {
		file string
		env  []string
		none bool
	}{
		"nothing":            {file: "no.json", none: true},
		"an empty file":      {file: "dir/empty.json", none: true},
		"a login":            {file: "dir/login.json"},
		"a variable":         {file: "no.json", env: []string{"B=x"}},
		"an empty variable":  {file: "no.json", env: []string{"A="}, none: true},
		"another's variable": {file: "no.json", env: []string{"C=x"}, none: true},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", keyScript, "sh", row.file, "A", "B")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, row.env...)
		if out, err := cmd.Output(); err != nil || (strings.TrimSpace(string(out)) == "1") != row.none {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// An agent that fails at once is told by what it has printed, whoever has begun tmux, and the terminal beside it can still be left.
func TestStartScript(t *testing.T) {
	t.Parallel()
	for name, terminal := range map[string]bool{"first": false, "beside the terminal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(argv ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMUX_TMPDIR=" + dir, "SHELL=/bin/sh"}
				out, err := cmd.CombinedOutput()
				return strings.TrimSpace(string(out)), err
			}
			defer func() {
				if out, err := run("tmux", "kill-server"); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}()
			if terminal {
				if out, err := run("sh", "-c", beginTerminal); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			start := func(agent, program string) (string, error) {
				launcher := filepath.Join(dir, agent+".sh")
				if err := os.WriteFile(launcher, []byte(program), 0o600); err != nil {
					t.Fatal(err)
				}
				return run("sh", "-c", startScript, "sh", AgentSession, agent, dir, launcher)
			}
			for heard := false; !heard; { // go test's own deadline ends it: on a busy machine tmux may miss what is printed at the very end
				out, err := start("broken", "echo its last words; exit 3")
				if heard = strings.Contains(out, "its last words"); err == nil || !heard && !strings.Contains(out, "3") {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, agent := range []string{"one", "two"} {
				if out, err := start(agent, "sleep 1000"); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				if out, err := run("sh", "-c", runsScript, "sh", AgentSession, agent); err != nil || out != "1" {
					t.Errorf("%s runs: %q, %v", agent, out, err)
				}
			}
			if out, err := run("sh", "-c", runsScript, "sh", AgentSession, "broken"); err != nil || out != "" {
				t.Errorf("broken runs: %q, %v", out, err)
			}
			if out, err := start("quick", "exit 0"); err == nil {
				t.Errorf("it runs: %s", out)
			}
			if out, err := run("tmux", "show-options", "-gwv", "remain-on-exit"); err != nil || out != "off" {
				t.Errorf("other windows stay when their program has ended: %q, %v", out, err)
			}
			if out, err := run("tmux", "show-options", "-gv", "history-limit"); err != nil || out != "50000" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}
