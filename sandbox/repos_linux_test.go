package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// jails returns a manager of real jails.
func jails(t *testing.T) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if i := m.Runtimes(t.Context(), sandbox.RuntimeJail); !i[0].Healthy {
		t.Skipf("no jail can be made here: %s", i[0].Reason)
	}
	return m
}

// repository makes one with a commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	gittest.Git(t, dir, "config", "user.name", "Ada")
	gittest.Git(t, dir, "config", "user.email", "ada@example.com")
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "add", "-A")
	gittest.Git(t, dir, "commit", "-qm", "user")
	return dir
}

// shell runs a command in the sandbox, and saves what it changed.
func shell(t *testing.T, sb *sandbox.Sandbox, command string) string {
	t.Helper()
	r, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", command}})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %d %s %v", command, r.ExitCode, r.Stderr, err)
	}
	if sb.Spec().BranchOf() != "" {
		if _, err := sb.Branch().Save(t.Context(), sandbox.CommandRecord{Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	return string(r.Stdout)
}

func named(t *testing.T, m *sandbox.Manager, s sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	s.Runtime, s.Network = sandbox.RuntimeJail, sandbox.NetworkNone
	sb, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close() })
	return sb
}

// Each of several repositories has a branch with what a command changed in its clone, and a recreated sandbox has the work of all.
func TestSeveralRepositories(t *testing.T) {
	t.Parallel()
	m, api, web := jails(t), repository(t), repository(t)
	sb := named(t, m, sandbox.Spec{Name: "shop", Repos: []sandbox.NamedRepo{{Name: "api", Repo: api}, {Name: "web", Repo: web}}})
	shell(t, sb, "echo new >api/a; echo new >web/w; rm web/file")
	for repo, want := range map[string]string{api: "a\nfile", web: "w"} {
		if got := gittest.Git(t, repo, "ls-tree", "--name-only", "sandbox/shop"); got != want {
			t.Errorf("%s has %q", repo, got)
		}
		if log, err := sb.Branch().In(repo).Log(t.Context()); err != nil || len(log) != 2 || len(log[0].Commands) != 1 {
			t.Errorf("log of %s: %+v, %v", repo, log, err)
		}
	}
	if merged, err := sb.Branch().In(web).Merge(t.Context(), "m"); !merged || err != nil {
		t.Errorf("merge: %v, %v", merged, err)
	}
	if _, err := os.Stat(filepath.Join(api, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("merged into the other repository: %v", err)
	}
	if _, err := sb.Branch().Log(t.Context()); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Errorf("log of all: %v", err)
	}

	again, err := sb.Rebuild(t.Context(), sb.Spec())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := shell(t, again, "cat api/a web/w; ls web"); got != "new\nnew\nw\n" {
		t.Errorf("rebuilt: %q", got)
	}
	if again, err = again.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := shell(t, again, "ls api web"); got != "api:\nfile\n\nweb:\nw\n" { // w is merged
		t.Errorf("reset: %q", got)
	}
	if err := again.Remove(t.Context(), sandbox.RemoveOptions{}); err != nil {
		t.Error(err)
	}
}

// A sandbox that was not used leaves no branch of its worktree.
func TestDiscardBranch(t *testing.T) {
	t.Parallel()
	m, repo := jails(t), repository(t)
	for _, discard := range []bool{true, false} {
		sb := named(t, m, sandbox.Spec{Name: "tree", Worktree: repo})
		if err := sb.Remove(t.Context(), sandbox.RemoveOptions{Discard: true, DiscardBranch: discard}); err != nil {
			t.Error(err)
		}
		if got := gittest.Git(t, repo, "branch", "--list", "sandbox-tree"); (got == "") != discard {
			t.Errorf("%t: %q", discard, got)
		}
	}
}

func TestRepositoriesRefused(t *testing.T) {
	t.Parallel()
	m, repo := jails(t), repository(t)
	for name, row := range map[string]struct {
		spec sandbox.Spec
		says []string
	}{
		"twice":           {sandbox.Spec{Repos: []sandbox.NamedRepo{{Name: "a", Repo: repo}, {Name: "b", Repo: repo}}}, []string{repo}},
		"all mistakes":    {sandbox.Spec{Repos: []sandbox.NamedRepo{{Name: "../a", Repo: repo}, {Name: "b", Repo: "https://h/r"}}}, []string{"../a", "https://h/r"}},
		"one name":        {sandbox.Spec{Repos: []sandbox.NamedRepo{{Name: "a", Repo: repo}, {Name: "a", Repo: "/other"}}}, []string{"a"}},
		"beside a clone":  {sandbox.Spec{Repo: repo, Repos: []sandbox.NamedRepo{{Name: "a", Repo: repo}}}, []string{sandbox.CloneDir}},
		"not on the host": {sandbox.Spec{Repos: []sandbox.NamedRepo{{Name: "a", Repo: "git@h:o/r.git"}}}, []string{"git@h:o/r.git"}},
	} {
		row.spec.Name, row.spec.Runtime = "refused", sandbox.RuntimeJail
		_, err := m.Create(t.Context(), row.spec)
		if !errors.Is(err, sandbox.ErrInvalidSpec) || slices.ContainsFunc(row.says, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
