package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// agentGit runs git the way the agent's is configured, and returns what it prints.
func agentGit(t *testing.T, config string, args ...string) (string, error) {
	t.Helper()
	tail := proc.NewTail(4 << 10)
	err := proc.Run(t.Context(), proc.Spec{
		Argv: append([]string{"git"}, args...), Stdout: tail, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_SYSTEM=" + config, "GIT_TERMINAL_PROMPT=0"},
	})
	return tail.String(), err
}

func TestAgentReadsTheRemoteWithoutACredential(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "secret-token")
	url := srv.Create(t, "r.git", map[string]string{"a": "1"})
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	gittest.Git(t, ".", "clone", "-q", "--mirror", filepath.Join(srv.Root, "r.git"), mirror)
	var fail error
	g := &Git{
		Remote: url, Mirror: mirror, Log: slog.New(slog.DiscardHandler),
		Refresh: func(context.Context) error {
			if fail == nil {
				gittest.Git(t, mirror, "fetch", "-q", "--prune", filepath.Join(srv.Root, "r.git"), "+refs/heads/*:refs/heads/*")
			}
			return fail
		},
	}
	by, err := g.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	config := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(config, []byte("[url \""+by+"\"]\n\tinsteadOf = "+url+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	out, err := agentGit(t, config, "ls-remote", url)
	if err != nil || !strings.Contains(out, "refs/heads/main") {
		t.Fatalf("ls-remote: %v: %s", err, out)
	}

	// New commits of the remote are seen, and come with a fetch and a clone.
	sha := gittest.Git(t, filepath.Join(srv.Root, "r.git"), "commit-tree", "-m", "new", "HEAD^{tree}")
	gittest.Git(t, filepath.Join(srv.Root, "r.git"), "update-ref", "refs/heads/new", sha)
	g.mu.Lock()
	g.fetched = g.fetched.Add(-2 * refreshEvery)
	g.mu.Unlock()
	clone := filepath.Join(t.TempDir(), "c")
	if out, err := agentGit(t, config, "clone", "-q", url, clone); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	if got := gittest.Git(t, clone, "rev-parse", "origin/new"); got != sha {
		t.Errorf("cloned %s, want %s", got, sha)
	}

	// While a proof runs nothing of what came later is there; see TestOnlyWhatIsKeptIsServed.
	before := filepath.Join(t.TempDir(), "before.git")
	gittest.Git(t, ".", "init", "-q", "--bare", before)
	gittest.Git(t, before, "fetch", "-q", mirror, "refs/heads/main:refs/heads/main")
	back := g.Only(before)
	if out, err := agentGit(t, config, "ls-remote", url); err != nil || !strings.Contains(out, "refs/heads/main") || strings.Contains(out, sha) {
		t.Errorf("ls-remote during a proof: %v: %s", err, out)
	}
	back()
	if out, err := agentGit(t, config, "ls-remote", url); err != nil || !strings.Contains(out, sha) {
		t.Errorf("ls-remote after a proof: %v: %s", err, out)
	}

	if out, err := agentGit(t, config, "-C", clone, "push", "origin", "HEAD:refs/heads/x"); err == nil {
		t.Errorf("a push went through: %s", out)
	}
	resp, err := http.Get(by + "/info/refs?service=git-receive-pack") //nolint:noctx // a test's request to loopback
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("receive-pack: status %d, want 403", resp.StatusCode)
	}

	fail = errors.New("the remote is gone")
	g.mu.Lock()
	g.fetched = g.fetched.Add(-2 * refreshEvery)
	g.mu.Unlock()
	if _, err := agentGit(t, config, "ls-remote", url); err == nil {
		t.Error("stale refs are served as if they were the remote's")
	}
}

// insteadOf matches prefixes: a sibling repository is sent back to its own address.
func TestSiblingRepositoryIsNotSwallowed(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "")
	url := srv.Create(t, "r", map[string]string{"a": "1"})
	srv.Create(t, "r-two", map[string]string{"b": "2"})
	g := &Git{Remote: url, Mirror: filepath.Join(srv.Root, "r"), Log: slog.New(slog.DiscardHandler), Refresh: func(context.Context) error { return nil }}
	by, err := g.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	config := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(config, []byte("[url \""+by+"\"]\n\tinsteadOf = "+url+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(t.TempDir(), "c")
	if out, err := agentGit(t, config, "clone", "-q", url+"-two", clone); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(clone, "b")); err != nil {
		t.Error("another repository was cloned")
	}
}

// While only another repository is served, nothing of the mirror can be had, not even by its id, and the remote is not asked.
func TestOnlyWhatIsKeptIsServed(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "")
	url := srv.Create(t, "r.git", map[string]string{"a": "1"})
	mirror, before := filepath.Join(t.TempDir(), "mirror.git"), filepath.Join(t.TempDir(), "before.git")
	gittest.Git(t, ".", "clone", "-q", "--mirror", filepath.Join(srv.Root, "r.git"), mirror)
	gittest.Git(t, ".", "clone", "-q", "--mirror", "--local", mirror, before)
	sha := gittest.Git(t, mirror, "commit-tree", "-m", "fix", "HEAD^{tree}")
	gittest.Git(t, mirror, "update-ref", "refs/heads/agent/T-A1B2C3D4-x", sha)
	var fetches atomic.Int32
	g := &Git{Remote: url, Mirror: mirror, Log: slog.New(slog.DiscardHandler), Refresh: func(context.Context) error { fetches.Add(1); return nil }}
	by, err := g.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	clone := filepath.Join(t.TempDir(), "c")
	if out, err := agentGit(t, os.DevNull, "clone", "-q", "--single-branch", "--branch", "main", by, clone); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	stale := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.fetched = g.fetched.Add(-2 * refreshEvery)
	}
	see := func(when string, want bool) {
		t.Helper()
		stale()
		refs, err := agentGit(t, os.DevNull, "ls-remote", by)
		if err != nil || !strings.Contains(refs, "refs/heads/main") || strings.Contains(refs, sha) != want {
			t.Errorf("%s: %v: %s", when, err, refs)
		}
		for _, version := range []string{"0", "2"} { // 2 gives any object, 0 the tips
			got := filepath.Join(t.TempDir(), "got")
			gittest.Git(t, ".", "clone", "-q", "--bare", clone, got)
			if out, err := agentGit(t, os.DevNull, "-c", "protocol.version="+version, "-C", got, "fetch", "-q", by, sha); (err == nil) != want {
				t.Errorf("%s: version %s: %v: %s", when, version, err, out)
			}
		}
	}
	see("before", true)
	back, asked := g.Only(before), fetches.Load()
	see("meanwhile", false)
	if n := fetches.Load(); n != asked {
		t.Errorf("the remote was asked %d times", n-asked)
	}
	back()
	see("afterwards", true)
	if fetches.Load() == asked {
		t.Error("the mirror is not refreshed any more")
	}
}

// TestOneFetchForAll: who asked first may go away, who waits may stop waiting, and one fetch serves the others.
func TestOneFetchForAll(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan error)
	g := &Git{
		Remote: "https://git.example/r", Mirror: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Refresh: func(ctx context.Context) error {
			began <- struct{}{}
			select {
			case err := <-release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	if _, err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	g.fetched = g.fetched.Add(-2 * refreshEvery)
	first, leave := context.WithCancel(t.Context())
	errs := make(chan error, 4)
	go func() { errs <- g.refresh(first) }()
	<-began
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.refresh(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not want to wait: %v", err)
	}
	leave()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	for range 3 {
		go func() { errs <- g.refresh(t.Context()) }()
	}
	release <- nil // the fetch goes on without the first
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	g.mu.Lock()
	g.fetched = g.fetched.Add(-2 * refreshEvery)
	g.mu.Unlock()
	go func() { errs <- g.refresh(t.Context()) }()
	<-began
	g.Stop()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("at the end: %v", err)
	}
}
