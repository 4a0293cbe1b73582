package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestWorkWithoutAName: without a name a command takes the variable's sandbox, the last task of the repository, or the
// one newer sandbox whose branch descends from HEAD.
// Docs: docs/take-over.md#without-a-name
func TestWorkWithoutAName(t *testing.T) {
	t.Parallel()
	repo, state := t.TempDir(), t.TempDir()
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, repo, args...) }
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "base")
	head := git("rev-parse", "HEAD")
	bare := filepath.Join(state, branch.Dir, "x.git")
	if err := os.MkdirAll(filepath.Dir(bare), 0o700); err != nil {
		t.Fatal(err)
	}
	git("clone", "-q", "--bare", repo, bare)
	gittest.Git(t, bare, "config", "sandbox-agent.repo", repo)
	gittest.Git(t, bare, "update-ref", "-d", "refs/heads/main")
	now := time.Now()
	sandbox := func(name string, created time.Time) {
		t.Helper()
		gittest.Git(t, bare, "update-ref", "refs/heads/"+name, head)
		gittest.Git(t, bare, "config", "sandbox-agent."+name+".created", created.Format(time.RFC3339))
	}
	vars := map[string]string{"SANDBOX_AGENT_STATE_DIR": state}
	env := &Env{Dir: repo, Getenv: func(name string) string { return vars[name] }}
	want := func(name string, code int) {
		t.Helper()
		w, err := env.Works().Find(t.Context(), nil)
		switch {
		case code != 0:
			if exiterr.Code(err) != code {
				t.Errorf("%v, want exit code %d", err, code)
			}
		case err != nil || w.Name() != name:
			t.Errorf("%v, %v; want %s", w, err, name)
		}
	}
	want("", workorder.ExitNotFound)
	sandbox("old", now.Add(-2*time.Hour))
	want("old", 0)
	lock, err := taskstore.New(state).Create(&taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: now.Add(-time.Hour), Collected: true, LocalRepo: repo})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	want("T-A1B2C3D4", 0)
	sandbox("dev", now)
	want("dev", 0)
	sandbox("other", now)
	want("", workorder.ExitUsage)
	vars[SandboxVariable] = "old"
	want("old", 0)
	delete(vars, SandboxVariable)
	git("commit", "-q", "--allow-empty", "-m", "another line") // of which no branch of a sandbox descends
	want("T-A1B2C3D4", 0)
	env.Dir = t.TempDir()
	want("T-A1B2C3D4", 0)
}

// TestContinueWithoutAName: continue without a name takes the last task of the repository that can continue.
// Docs: docs/take-over.md#without-a-name
func TestContinueWithoutAName(t *testing.T) {
	t.Parallel()
	repo, state := t.TempDir(), t.TempDir()
	gittest.Git(t, repo, "init", "-q", "-b", "main")
	env := &Env{Dir: repo, Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name] }}
	want := func(text, id string, code int) {
		t.Helper()
		got, err := env.Works().continuable(t.Context(), text)
		if got != id || exiterr.Code(err) != code {
			t.Errorf("%q, %v, want %q and exit code %d", got, err, id, code)
		}
	}
	want("", "", workorder.ExitNotFound)
	add := func(id, repo string, status workorder.Status, by workorder.EndedBy, age time.Duration) {
		t.Helper()
		lock, err := taskstore.New(state).Create(&taskstore.Record{
			TaskID: id, CreatedAt: time.Now().Add(-age), Collected: true, LocalRepo: repo, Status: status, EndedBy: by,
		})
		if err != nil {
			t.Fatal(err)
		}
		lock.Unlock()
	}
	add("T-0000000A", repo, workorder.StatusSuccess, workorder.EndedByAgent, time.Minute)
	want("", "", workorder.ExitNotFound)
	want("and more", "T-0000000A", 0)
	add("T-0000000B", repo, workorder.StatusInterrupted, workorder.EndedBySignal, time.Hour)
	want("", "T-0000000B", 0)
	want("and more", "T-0000000A", 0)
	add("T-0000000C", t.TempDir(), workorder.StatusInterrupted, workorder.EndedBySignal, time.Second)
	want("", "T-0000000B", 0)
	env.Dir = t.TempDir()
	want("", "T-0000000C", 0)
}
