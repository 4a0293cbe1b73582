package rootgit

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	token  = "t0ken-of-the-test"
	target = "agent/T-A1B2C3D4-x"
)

type fixture struct {
	*parts
	srv    *gittest.Server
	base   string
	bundle string

	mu     sync.Mutex
	events []workorder.Event
}

func (f *fixture) emit(e workorder.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

// seen are the events so far: a keeper or a sign of life may go on beside the test.
func (f *fixture) seen() []workorder.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// newFixture is a publisher whose work tree is checked out.
func newFixture(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	if files == nil {
		files = map[string]string{"README": "hello\n"}
	}
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", files)
	f := newBox(t, srv, workorder.ModeCreate)
	if _, r := f.start(t); r != nil {
		t.Fatalf("a new task restored %+v", r)
	}
	return f
}

// newBox is a publisher of the one task that has not begun.
func newBox(tb testing.TB, srv *gittest.Server, mode workorder.Mode) *fixture {
	tb.Helper()
	url := srv.URL + "/r.git"
	f := &fixture{srv: srv, bundle: filepath.Join(tb.TempDir(), "work.bundle")}
	f.parts = connect(&remote.Repos{
		Order: &workorder.Order{
			Repo:         url,
			CloneURL:     url,
			TaskID:       "T-A1B2C3D4",
			TargetBranch: target,
			Mode:         mode,
			AttemptID:    workorder.NewAttemptID(),
			Task:         "do x",
			Author:       workorder.Identity{Name: "Agent", Email: "agent@example.org"},
		},
		Dir:       tb.TempDir(),
		BeforeDir: filepath.Join(tb.TempDir(), "proof", "before.git"),
		Workspace: filepath.Join(tb.TempDir(), "ws"),
		Home:      tb.TempDir(),
		Auth:      &git.Auth{URL: url, Token: token},
		Emit:      f.emit,
	})
	tb.Cleanup(f.Heartbeat.Stop)
	if err := os.Mkdir(f.Repos.Workspace, 0o755); err != nil {
		tb.Fatal(err)
	}
	return f
}

// rescue is another process with the same folders.
func (f *fixture) rescue(tb testing.TB) *fixture {
	tb.Helper()
	r := &fixture{srv: f.srv, base: f.base, bundle: f.bundle}
	r.parts = connect(
		&remote.Repos{
			Order:     f.Repos.Order,
			Dir:       f.Repos.Dir,
			Workspace: f.Repos.Workspace,
			Home:      f.Repos.Home,
			Auth:      f.Repos.Auth,
			Emit:      r.emit,
		},
	)
	tb.Cleanup(r.Heartbeat.Stop)
	return r
}

// start brings a box to where the agent would begin.
func (f *fixture) start(tb testing.TB) (*claim.Result, *workorder.Restored) {
	tb.Helper()
	base, sha, err := f.Claimer.Fetch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if base != "main" {
		tb.Fatalf("default branch %q, want main", base)
	}
	c, err := f.Claimer.Claim(tb.Context(), base, sha)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := f.Checkpoints.Checkout(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	f.base = c.BaseSHA
	return c, r
}

func (f *fixture) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(f.Repos.Workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) land(t *testing.T) land.Result {
	t.Helper()
	if err := f.Committer.Commit(t.Context(), says("leftovers")); err != nil {
		t.Fatal(err)
	}
	return f.Lander.Land(t.Context(), f.base, f.bundle, nil)
}

func (f *fixture) remote(t *testing.T, ref string) string {
	t.Helper()
	sha, err := f.srv.Repo("r.git").Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return sha
}
