package gitguard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

func repo(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	write(t, dir, "f", "1\n")
	write(t, dir, "t.sh", "#!/bin/sh\n[ -z \"$CANARY\" ] || : >>\"$CANARY\"\nexec cat ${1:+\"$1\"}\n")
	gittest.Git(t, dir, "add", "-A")
	gittest.Git(t, dir, "commit", "-q", "-m", "base")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, dir string, dirs ...string) []string {
	t.Helper()
	all, err := Find(t.Context(), append(dirs, dir))
	if err != nil {
		return []string{"refused"}
	}
	for i, path := range all {
		all[i], _ = filepath.Rel(dir, path)
	}
	return all
}

// What real git runs of a work tree by a setting is found.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		key, value string
		attribute  string
		run        []string // git's arguments; nil: another program than git, or a terminal, is needed to see it run
	}{
		{"core.fsmonitor", "./t.sh", "", []string{"status"}},
		{"core.fsmonitor", "sh t.sh", "", []string{"status"}},
		{"core.editor", "./t.sh", "", []string{"commit", "--amend"}},
		{"sequence.editor", "./t.sh", "", []string{"-c", "rebase.autoStash=true", "rebase", "-i", "--root"}},
		{"core.sshCommand", "./t.sh", "", []string{"ls-remote", "ssh://127.0.0.1/x"}},
		{"core.askPass", "./t.sh", "", nil},
		{"core.pager", "./t.sh", "", nil},
		{"pager.log", "./t.sh", "", nil},
		{"core.gitProxy", "./t.sh", "", []string{"ls-remote", "git://127.0.0.1/x"}},
		{"core.alternateRefsCommand", "./t.sh", "", nil},
		{"interactive.diffFilter", "./t.sh", "", nil},
		{"diff.external", "./t.sh", "", []string{"diff"}},
		{"diff.d.command", "./t.sh", "f diff=d", []string{"diff"}},
		{"diff.d.textconv", "sh -c './t.sh \"$1\"' --", "f diff=d", []string{"diff"}},
		{"merge.m.driver", "./t.sh %A", "f merge=m", []string{"merge", "other"}},
		{"filter.f.clean", "sh ./t.sh", "f filter=f", []string{"add", "f"}},
		{"filter.f.smudge", "t=1; ./t.sh", "f filter=f", []string{"checkout", "f"}},
		{"filter.f.process", "./t.sh", "f filter=f", []string{"add", "f"}},
		{"gpg.program", "./t.sh", "", []string{"commit", "-S", "--amend", "--no-edit"}},
		{"gpg.ssh.program", "./t.sh", "", nil},
		{"gpg.ssh.defaultKeyCommand", "./t.sh", "", nil},
		{"credential.helper", "!./t.sh", "", []string{"credential", "fill"}},
		{"credential.https://example.invalid.helper", "!./t.sh", "", []string{"credential", "fill"}},
		{"alias.run", "!./t.sh", "", []string{"run"}},
		{"alias.run", "!$(git rev-parse --show-toplevel)/t.sh", "", []string{"run"}},
		{"alias.run", "-c core.pager=./t.sh --paginate log", "", nil},
		{"difftool.d.cmd", "./t.sh", "", []string{"difftool", "--no-prompt", "--tool=d"}},
		{"mergetool.m.cmd", "./t.sh", "", nil},
		{"remote.o.uploadpack", "./t.sh", "", []string{"ls-remote", "o"}},
		{"remote.o.receivepack", "./t.sh", "", []string{"push", "o", "main"}},
		{"trailer.x.command", "./t.sh", "", []string{"interpret-trailers", "--trailer", "x=1", "f"}},
		{"tar.t.command", "./t.sh", "", []string{"archive", "--format=t", "HEAD"}},
		{"submodule.x.update", "!./t.sh", "", nil},
		{"browser.b.cmd", "./t.sh", "", nil},
	} {
		t.Run(row.key+"="+row.value, func(t *testing.T) {
			t.Parallel()
			dir := repo(t)
			gittest.Git(t, dir, "config", "remote.o.url", t.TempDir())
			gittest.Git(t, dir, "checkout", "-q", "-b", "other")
			write(t, dir, "f", "2\n")
			gittest.Git(t, dir, "commit", "-q", "-a", "-m", "other")
			gittest.Git(t, dir, "checkout", "-q", "main")
			write(t, dir, "f", "3\n")
			if slices.Contains(row.run, "merge") {
				gittest.Git(t, dir, "commit", "-q", "-a", "-m", "main")
			}
			if row.attribute != "" {
				write(t, dir, ".git/info/attributes", row.attribute+"\n")
			}
			gittest.Git(t, dir, "config", row.key, row.value)
			if got := find(t, dir); !slices.Equal(got, []string{".git", "t.sh"}) {
				t.Errorf("%q", got)
			}
			if row.run == nil {
				return
			}
			canary := filepath.Join(t.TempDir(), "canary")
			cmd := exec.CommandContext(t.Context(), "git", row.run...)
			cmd.Dir, cmd.Stdin = dir, strings.NewReader("protocol=https\nhost=example.invalid\n\n")
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "TERM=dumb", "CANARY="+canary, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.invalid", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.invalid")
			out, _ := cmd.CombinedOutput() // what the program does is not what git wants
			if _, err := os.Stat(canary); err != nil {
				t.Errorf("git %q ran nothing: nothing is tested: %s", row.run, out)
			}
		})
	}
}

// A word that is none of the work tree's files is no reason to refuse, and one that names a file that is missing is.
func TestWords(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][]string{
		"code --wait": {".git"}, "!g() { git log origin/main; }; g": {".git"}, "sed s/a/b/": {".git"}, "less": {".git"}, "ssh -i ~/.ssh/none-of-this-name": {".git"},
		"./none.sh": {"refused"}, "tools/none": {"refused"}, "sh ./none": {"refused"}, "sh t.sh": {".git", "t.sh"}, "status": {".git"},
	} {
		dir := repo(t)
		gittest.Git(t, dir, "config", "filter.x.clean", value)
		if got := find(t, dir); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// Hooks and files of settings in a work tree are found, whichever setting leads there.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		key, value string
		want       []string
	}{
		{"core.hooksPath", ".husky", []string{".git", ".husky"}},
		{"core.hooksPath", ".husky/_", []string{".git", ".husky"}},
		{"core.hooksPath", "TOP/.husky", []string{".git", ".husky"}},
		{"core.hooksPath", "none", []string{"refused"}},
		{"core.hooksPath", ".", []string{"refused"}},
		{"core.hooksPath", "link", []string{"refused"}},
		{"core.hooksPath", "/dev/null", []string{".git"}},
		{"include.path", "../conf/a", []string{".git", ".husky", "conf/a", "conf/b"}},
		{"includeIf.onbranch:none.path", "../conf/a", []string{".git", ".husky", "conf/a", "conf/b"}},
		{"include.path", "TOP/conf/b", []string{".git", ".husky", "conf/b"}},
		{"include.path", "../conf/none", []string{"refused"}},
		{"init.templateDir", "conf", []string{".git", "conf"}},
	} {
		dir := repo(t)
		write(t, dir, ".husky/_/pre-commit", "")
		write(t, dir, "conf/a", "[include]\n\tpath = b\n")
		write(t, dir, "conf/b", "[core]\n\thooksPath = .husky\n")
		if err := os.Symlink(".husky", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, "config", row.key, strings.ReplaceAll(row.value, "TOP", dir))
		if got := find(t, dir); !slices.Equal(got, row.want) {
			t.Errorf("%s=%s: %q, want %q", row.key, row.value, got, row.want)
		}
	}
}

// Submodules are found by the index of each repository, the last commit and .gitmodules, whoever wrote what.
func TestSubmodules(t *testing.T) {
	t.Parallel()
	link := func(dir, path string) {
		gittest.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+gittest.Git(t, dir, "rev-parse", "HEAD")+","+path)
	}
	for name, row := range map[string]struct {
		make func(dir string)
		want []string
	}{
		"index":     {func(dir string) { link(dir, "a/sub") }, []string{".git", "a/sub"}},
		"no folder": {func(dir string) { link(dir, "b") }, []string{"refused"}},
		"commit": {func(dir string) {
			link(dir, "a/sub")
			gittest.Git(t, dir, "commit", "-q", "-m", "sub")
			gittest.Git(t, dir, "rm", "-q", "--cached", "a/sub")
		}, []string{".git", "a/sub"}},
		"nested": {func(dir string) {
			gittest.Git(t, dir, "clone", "-q", dir, filepath.Join(dir, "n"))
			write(t, dir, "n/deep/sub/x", "")
			link(filepath.Join(dir, "n"), "deep/sub")
		}, []string{".git", "n/.git", "n/deep/sub"}},
		"checked out": {func(dir string) {
			gittest.Git(t, dir, "clone", "-q", dir, filepath.Join(dir, "n"))
			link(dir, "n")
		}, []string{".git", "n/.git"}},
		"link": {func(dir string) {
			if err := os.Symlink("a/sub", filepath.Join(dir, "l")); err != nil {
				t.Fatal(err)
			}
			link(dir, "l")
		}, []string{"refused"}},
		"gitmodules": {func(dir string) {
			write(t, dir, ".gitmodules", "[submodule \"x\"] path = \\\n  \"a/s\"ub ; words\n[submodule \"y\"]\n\tpath=../..\n[submodule \"z\"]\n\tpath=none\n")
		}, []string{".git", "a/sub"}},
		"separate": {func(dir string) {
			gittest.Git(t, dir, "init", "-q", "--separate-git-dir="+filepath.Join(dir, "meta"), filepath.Join(dir, "s"))
		}, []string{".git", "meta", "s/.git"}},
		"worktree": {func(dir string) {
			gittest.Git(t, dir, "clone", "-q", "--bare", dir, filepath.Join(dir, "bare"))
			gittest.Git(t, filepath.Join(dir, "bare"), "worktree", "add", "-q", "-b", "w", filepath.Join(dir, "w"))
		}, []string{".git", "bare", "w/.git"}},
	} {
		dir := repo(t)
		write(t, dir, "a/sub/x", "")
		row.make(dir)
		if got := find(t, dir); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
	dir := repo(t)
	write(t, dir, "a/sub/x", "")
	link(dir, "a/sub")
	if os.Geteuid() == 0 { // a repository of another user
		if err := os.Chown(dir, 54321, 54321); err != nil {
			t.Fatal(err)
		}
		if got := find(t, dir); !slices.Equal(got, []string{".git", "a/sub"}) {
			t.Errorf("of another user: %q", got)
		}
		if err := os.Chown(dir, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := find(t, filepath.Join(dir, "a")); !slices.Equal(got, []string{"sub"}) {
		t.Errorf("a part of a repository: %q", got)
	}
	if got := find(t, filepath.Join(dir, "a/sub")); !slices.Equal(got, []string{"refused"}) {
		t.Errorf("the submodule itself: %q", got)
	}
}

// What has been protected still is, and what the user has added since is not.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	write(t, dir, "hooks/x", "")
	all, err := Find(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "init", "-q", filepath.Join(dir, "made"))
	if err := Check(t.Context(), []string{dir}, all); err != nil {
		t.Errorf("a repository that may be the sandbox's: %v", err)
	}
	gittest.Git(t, dir, "config", "core.hooksPath", "hooks")
	if err := Check(t.Context(), []string{dir}, all); err == nil {
		t.Error("hooks that are not protected")
	}
}

// Files in which git would look for settings are protected, also empty ones, and a directory that could get one is refused.
func TestGlobal(t *testing.T) {
	for name, row := range map[string]struct {
		env  string // NAME=VALUE, with TOP for the directory
		make []string
		want []string
	}{
		"none":           {"", nil, []string{"refused"}},
		"the first":      {"", []string{".gitconfig"}, []string{"refused"}},
		"the second":     {"", []string{".config/git/config"}, []string{"refused"}},
		"both, empty":    {"", []string{".gitconfig", ".config/git/config"}, []string{".config/git/config", ".gitconfig"}},
		"XDG, none":      {"XDG_CONFIG_HOME=TOP/x", []string{".gitconfig", ".config/git/config"}, []string{"refused"}},
		"XDG":            {"XDG_CONFIG_HOME=TOP/x", []string{".gitconfig", "x/git/config"}, []string{".gitconfig", "x/git/config"}},
		"another alone":  {"GIT_CONFIG_GLOBAL=TOP/own", []string{"own"}, []string{"own"}},
		"another, none":  {"GIT_CONFIG_GLOBAL=TOP/own", []string{".gitconfig", ".config/git/config"}, []string{"refused"}},
		"another beside": {"GIT_CONFIG_GLOBAL=/dev/null", nil, nil},
		"system, none":   {"GIT_CONFIG_SYSTEM=TOP/s", []string{".gitconfig", ".config/git/config"}, []string{"refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("HOME", dir)
			for _, key := range []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"} {
				t.Setenv(key, "") // what it was comes back
				if err := os.Unsetenv(key); err != nil {
					t.Fatal(err)
				}
			}
			if key, value, ok := strings.Cut(row.env, "="); ok {
				t.Setenv(key, strings.ReplaceAll(value, "TOP", dir))
			}
			for _, file := range row.make {
				write(t, dir, file, "")
			}
			if got := find(t, dir); !slices.Equal(got, row.want) {
				t.Errorf("%q, not %q", got, row.want)
			}
			if err := Check(t.Context(), []string{dir}, nil); (err == nil) != (len(row.want) == 0) {
				t.Errorf("check: %v", err)
			}
		})
	}
}

// Repositories that appear in a directory are found, and those that were there are not.
func TestAppeared(t *testing.T) {
	t.Parallel()
	dir := repo(t)
	gittest.Git(t, dir, "init", "-q", filepath.Join(dir, "old"))
	before, err := Find(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if got, all := Appeared(t.Context(), []string{dir}, before); len(got) > 0 || !all {
		t.Errorf("nothing has appeared: %q, %t", got, all)
	}
	gittest.Git(t, dir, "rm", "-q", "f")
	gittest.Git(t, dir, "init", "-q", filepath.Join(dir, "f"))
	gittest.Git(t, dir, "init", "-q", "--bare", filepath.Join(dir, "a/b"))
	write(t, dir, "file/.git", "gitdir: ../a/b\n")
	write(t, dir, "case/.GiT/config", "")
	if err := os.Symlink("a/b", filepath.Join(dir, "old/x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../a/b", filepath.Join(dir, "file/.GIT")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "refs"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "HEAD", "ref: refs/heads/main\n")
	write(t, dir, "objects/x", "")
	got, all := Appeared(t.Context(), []string{dir, filepath.Join(dir, "a")}, before)
	for i := range got {
		got[i], _ = filepath.Rel(dir, got[i])
	}
	if want := []string{"HEAD", "a/b/HEAD", "case/.GiT", "f/.git", "file/.GIT", "file/.git"}; !slices.Equal(got, want) || !all {
		t.Errorf("%q, not %q, %t", got, want, all)
	}
	many := t.TempDir()
	for i := range maxPaths + 1 {
		write(t, many, fmt.Sprint(i, "/.git"), "")
	}
	if got, all := Appeared(t.Context(), []string{many}, nil); len(got) != maxPaths || all {
		t.Errorf("%d, %t", len(got), all)
	}
}
