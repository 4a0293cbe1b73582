package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	firstFiles = `printf '.env\nlarge\nnode_modules\n' >.gitignore; echo one >file; echo 1 >.env; mkdir -p node_modules && echo m >node_modules/m
		head -c 40000000 /dev/zero >large; git add -A; git -c user.name=a -c user.email=a@b commit -qm inside; echo u >untracked`
	laterFiles = `echo later >file; rm untracked; echo 2 >.env; echo n >new; git add new; git -c user.name=a -c user.email=a@b commit -qm more`
	showFiles  = `cat file .env untracked new 2>/dev/null; test -e node_modules && echo node_modules`
)

// A snapshot of a jail has the clone's files, with those that git ignores. A restore commits the difference and keeps what was there.
func TestSnapshotOfClone(t *testing.T) {
	t.Parallel()
	m, repo := jails(t), repository(t)
	sb := named(t, m, sandbox.Spec{Name: "dev", Repo: repo})
	shell(t, sb, firstFiles)
	s, err := sb.Snapshot(t.Context(), "before")
	if err != nil || s.Commit == "" || len(s.Omitted) != 1 || s.Omitted[0] != sandbox.CloneDir+"/large" {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := sb.Snapshot(t.Context(), "before"); !errors.Is(err, sandbox.ErrSnapshotExists) {
		t.Errorf("again: %v", err)
	}
	shell(t, sb, laterFiles)
	restore := func(name, want string) {
		t.Helper()
		back, err := m.Snapshots().Restore(t.Context(), "dev", name)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if got := shell(t, back, showFiles+"; true"); got != want {
			t.Errorf("restored %s: %q", name, got)
		}
	}
	restore("before", "one\n1\nu\nnode_modules\n")
	restore("before-restore", "later\n2\nn\nnode_modules\n")
	if got := gittest.Git(t, repo, "log", "--format=%s", "sandbox/dev"); !strings.HasPrefix(got, "Restore snapshot before-restore\nRestore snapshot before\n") {
		t.Errorf("log: %s", got)
	}

	fork, err := sb.Fork(t.Context(), "fork")
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	if got := shell(t, fork, showFiles+"; git status --short; git log --format=%s -n 1"); got != "later\n2\nn\nRestore snapshot before-restore\n" ||
		len(fork.Info().Omitted) != 1 {
		t.Errorf("fork: %q, without %q", got, fork.Info().Omitted)
	}
	if _, err := sb.Fork(t.Context(), "fork"); !errors.Is(err, sandbox.ErrExists) {
		t.Errorf("fork again: %v", err)
	}

	if err := sb.Remove(t.Context(), sandbox.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	restore("before", "one\n1\nu\n")
	all, err := m.Snapshots().ListOf(t.Context(), "dev")
	if err != nil || len(all) != 3 { // with before-restore-2
		t.Errorf("%+v, %v", all, err)
	}
	for _, s := range all {
		if err := m.Snapshots().Remove(t.Context(), "dev", s.Name); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Snapshots().Restore(t.Context(), "dev", "before"); err == nil {
		t.Error("a removed snapshot is restored")
	}
}

// What cannot be committed would be lost by a restore, which then changes nothing.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	m := jails(t)
	sb := named(t, m, sandbox.Spec{Name: "dev", Repo: repository(t)})
	if _, err := sb.Snapshot(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	shell(t, sb, "echo later >file; head -c 12000000 /dev/zero >large")
	if _, err := m.Snapshots().Restore(t.Context(), "dev", "before"); err == nil {
		t.Error("restored")
	}
	if got := shell(t, sb, "cat file; ls"); got != "later\nfile\nlarge\n" {
		t.Errorf("it has %q", got)
	}
	if s, err := sb.Snapshot(t.Context(), "with-large"); err != nil || len(s.Omitted) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}
