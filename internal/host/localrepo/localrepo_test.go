package localrepo_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	id     = "T-A1B2C3D4"
	branch = "agent/T-A1B2C3D4-do-it"
	token  = "s3cret"
)

// git runs git with a configuration of its own and returns what it said.
func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := proc.Run(t.Context(), proc.Spec{
		Argv: append([]string{"git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", "-c", "http.postBuffer=65536"}, args...), Dir: dir,
		Env:    append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"),
		Stdout: &out, Stderr: &out,
	})
	return strings.TrimSpace(out.String()), err
}

func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

// authorised adds the credential the way a box does: not in the URL.
func authorised(tok string, args ...string) []string {
	return append([]string{"-c", "http.extraHeader=Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("sandbox:"+tok))}, args...)
}

func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, dir, "init", "-q")
	write(t, filepath.Join(dir, "file"), []byte("one\n"))
	must(t, dir, "add", ".")
	must(t, dir, "commit", "-qm", "one")
	return dir
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, repo string) string {
	t.Helper()
	h, err := localrepo.NewHandler(t.Context(), localrepo.Options{
		Repo: repo, Token: token, TaskID: id, TargetBranch: branch, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/repo.git"
}

func clone(t *testing.T, url string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	must(t, "/", authorised(token, "clone", "-q", url, dir)...)
	return dir
}

func commit(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	write(t, filepath.Join(dir, name), content)
	must(t, dir, "add", ".")
	must(t, dir, "commit", "-qm", name)
	return must(t, dir, "rev-parse", "HEAD")
}

func TestCloneAndPush(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	url := serve(t, repo)
	dir := clone(t, url)
	// Far above what git sends in one piece, so the push is chunked.
	blob := make([]byte, 30<<20)
	_, _ = rand.Read(blob)
	sha := commit(t, dir, "big", blob)
	must(t, dir, authorised(token, "push", "-q", "origin", "HEAD:refs/heads/"+branch)...)
	if got := must(t, repo, "rev-parse", branch); got != sha {
		t.Errorf("the branch is at %s, want %s", got, sha)
	}
	if got := must(t, repo, "status", "--porcelain"); got != "" {
		t.Errorf("the user's tree changed: %s", got)
	}
	packs := func() int {
		list, err := filepath.Glob(filepath.Join(repo, ".git/objects/pack/*.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := packs()
	// A checkpoint is rewound again and again.
	for _, name := range []string{"a", "b"} {
		must(t, dir, "checkout", "-q", "--detach", "origin/main")
		want := commit(t, dir, name, []byte(name))
		must(t, dir, authorised(token, "-c", "http.postBuffer=1048576", "push", "-qf", "origin", "HEAD:refs/sandbox-agent/"+id+"/checkpoint")...)
		if got := must(t, repo, "rev-parse", "refs/sandbox-agent/"+id+"/checkpoint"); got != want {
			t.Errorf("checkpoint is at %s, want %s", got, want)
		}
	}
	if n := packs(); n != before {
		t.Errorf("small pushes made %d packs", n-before)
	}
	// A shallow clone, and a fetch of what is new.
	shallow := filepath.Join(t.TempDir(), "shallow")
	must(t, "/", authorised(token, "clone", "-q", "--depth", "1", "--no-single-branch", url, shallow)...)
	must(t, dir, authorised(token, "-c", "protocol.version=0", "fetch", "-q", "origin")...)
}

// A push that has arrived is completed, even if the sender's machine is gone.
func TestPushOfADeadSender(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	at := serve(t, repo)
	dir := clone(t, at)
	sha := commit(t, dir, "new", []byte("new\n"))
	pack, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"git", "pack-objects", "--revs", "--stdout", "-q"}, Dir: dir, Stdin: strings.NewReader(sha + "\n^" + sha + "~1\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("0", len(sha)) + " " + sha + " refs/heads/" + branch + "\x00report-status"
	body := fmt.Sprintf("%04x%s0000%s", len(line)+4, line, pack)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: %d\r\n\r\n%s",
		u.Path, base64.StdEncoding.EncodeToString([]byte("sandbox:"+token)), len(body), body); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 1000 {
		if got, err := git(t, repo, "rev-parse", "--verify", "refs/heads/"+branch); err == nil {
			if got != sha {
				t.Errorf("the branch is at %s, want %s", got, sha)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the push did not arrive")
}

func TestForbiddenRefs(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	before := must(t, repo, "for-each-ref")
	dir := clone(t, serve(t, repo))
	commit(t, dir, "x", []byte("x"))
	for _, ref := range []string{
		"refs/heads/main", "refs/heads/" + branch + "x", "refs/heads/" + branch + "/x", "refs/heads/agent/T-00000000-x", "refs/tags/v1",
		"refs/sandbox-agent/T-00000000/checkpoint", "refs/sandbox-agent/" + id,
	} {
		out, err := git(t, dir, authorised(token, "push", "origin", "HEAD:"+ref)...)
		if err == nil || !strings.Contains(out, "this run may only push its own branch") {
			t.Errorf("push to %s: %v\n%s", ref, err, out)
		}
	}
	// One forbidden ref forbids the push.
	if out, err := git(t, dir, authorised(token, "push", "origin", "HEAD:refs/heads/"+branch, "HEAD:refs/heads/main")...); err == nil {
		t.Errorf("a mixed push was taken: %s", out)
	}
	if out, err := git(t, dir, authorised(token, "push", "origin", ":refs/heads/main")...); err == nil {
		t.Errorf("the base branch was deleted: %s", out)
	}
	if after := must(t, repo, "for-each-ref"); after != before {
		t.Errorf("refs changed:\n%s\n%s", before, after)
	}
}

// TestCheckedOut: a target branch that the user has checked out is not moved
// below the work tree.
func TestCheckedOut(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	must(t, repo, "checkout", "-qb", branch)
	must(t, repo, "config", "receive.denyCurrentBranch", "updateInstead")
	dir := clone(t, serve(t, repo))
	commit(t, dir, "x", []byte("x"))
	if out, err := git(t, dir, authorised(token, "push", "origin", "HEAD:refs/heads/"+branch)...); err == nil {
		t.Errorf("the checked-out branch was moved: %s", out)
	}
}

// TestUsersHooks: neither hooks nor configuration of the repository run programs for a push.
func TestUsersHooks(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	mark := filepath.Join(t.TempDir(), "ran")
	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "push-to-checkout"} {
		write(t, filepath.Join(repo, ".git", "hooks", hook), []byte("#!/bin/sh\necho "+hook+" >>"+mark+"\n"))
	}
	must(t, repo, "config", "core.fsmonitor", "touch "+mark)
	must(t, repo, "config", "uploadpack.packObjectsHook", "touch "+mark)
	dir := clone(t, serve(t, repo))
	commit(t, dir, "x", []byte("x"))
	must(t, dir, authorised(token, "push", "-q", "origin", "HEAD:refs/heads/"+branch)...)
	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("ran: %s", b)
	}
}

func TestWrongToken(t *testing.T) {
	t.Parallel()
	url := serve(t, repository(t))
	for _, tok := range []string{"", "wrong", token + "x"} {
		if out, err := git(t, "/", authorised(tok, "ls-remote", url)...); err == nil {
			t.Errorf("token %q was taken: %s", tok, out)
		}
	}
	for _, path := range []string{"/HEAD", "/objects/info/packs", "/../repo.git/HEAD", "/info/refs", "/info/refs?service=git-upload-archive"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("x", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
}

// TestCompressedRequest: git compresses long lists of wants.
func TestCompressedRequest(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	url := serve(t, repo)
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	head := must(t, repo, "rev-parse", "HEAD")
	_, _ = io.WriteString(z, "0032want "+head+"\n00000009done\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/git-upload-pack", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("x", token)
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(b, []byte("PACK")) {
		t.Errorf("answer %q, %v", b, err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	sub := filepath.Join(repo, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "bare.git")
	must(t, "/", "clone", "-q", "--bare", repo, bare)
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, repo, "worktree", "add", "-q", "-b", "side", tree)
	empty := t.TempDir()
	must(t, empty, "init", "-q")
	detached := filepath.Join(t.TempDir(), "detached")
	must(t, "/", "clone", "-q", repo, detached)
	must(t, detached, "checkout", "-q", "--detach")
	dirty := filepath.Join(t.TempDir(), "dirty")
	must(t, "/", "clone", "-q", repo, dirty)
	write(t, filepath.Join(dirty, "new"), nil)
	for _, c := range []struct {
		name, path string
		want       localrepo.Repo
		base       string // of no branch given; empty: an error
	}{
		{"folder inside", sub, localrepo.Repo{Path: repo, Head: "main"}, "main"},
		{"bare", bare, localrepo.Repo{Path: bare, Bare: true, Head: "main"}, "main"},
		{"linked work tree", tree, localrepo.Repo{Path: tree, Head: "side"}, "side"},
		{"no commit", empty, localrepo.Repo{Path: empty, Head: "main", Empty: true}, ""},
		{"detached", detached, localrepo.Repo{Path: detached}, must(t, detached, "rev-parse", "HEAD")},
		{"uncommitted changes", dirty, localrepo.Repo{Path: dirty, Head: "main", Changed: []string{"new"}}, "main"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := localrepo.Open(t.Context(), c.path)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*r, c.want) {
				t.Errorf("got %+v, want %+v", *r, c.want)
			}
			base, err := r.Base(t.Context(), "")
			if base != c.base || (err != nil) != (c.base == "") {
				t.Errorf("base %q, %v", base, err)
			}
			if _, err := r.Base(t.Context(), "absent"); exiterr.Code(err) != workorder.ExitGit {
				t.Errorf("absent branch: %v", err)
			}
			if c.base != "" {
				clone(t, serve(t, r.Path))
			}
		})
	}
	sha256 := t.TempDir()
	must(t, sha256, "init", "-q", "--object-format=sha256")
	commit(t, repo, "two", nil)
	shallow := filepath.Join(t.TempDir(), "shallow")
	must(t, "/", "clone", "-q", "--depth", "1", "file://"+repo, shallow)
	for path, want := range map[string]string{sha256: "SHA-256", shallow: "shallow"} {
		if _, err := localrepo.Open(t.Context(), path); exiterr.Code(err) != workorder.ExitGit || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(repo, "file"), "/does/not/exist"} {
		if _, err := localrepo.Open(t.Context(), path); exiterr.Code(err) != workorder.ExitGit {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestImportBundle(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	dir := clone(t, serve(t, repo))
	must(t, dir, "checkout", "-qb", branch)
	sha := commit(t, dir, "x", []byte("x"))
	must(t, dir, "branch", "main2")
	bundle := filepath.Join(t.TempDir(), "work.bundle")
	must(t, dir, "bundle", "create", "-q", bundle, "main..."+branch, "main..main2")
	head, err := localrepo.ImportBundle(t.Context(), repo, bundle, id, branch)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(t, repo, "rev-parse", branch); got != sha || head != sha {
		t.Errorf("imported %s, told %s, want %s", got, head, sha)
	}
	if out, err := git(t, repo, "rev-parse", "--verify", "-q", "main2"); err == nil {
		t.Errorf("a ref that is not the run's came along: %s", out)
	}
	other := filepath.Join(t.TempDir(), "other.bundle")
	must(t, dir, "bundle", "create", "-q", other, "main2")
	if _, err := localrepo.ImportBundle(t.Context(), repo, other, id, branch); err == nil {
		t.Error("a bundle without a ref of the run was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := localrepo.ImportBundle(ctx, repo, bundle, id, branch); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHarmfulObjects: a tree can hold what no git makes, such as a folder .git
// with hooks for whoever checks it out.
func TestHarmfulObjects(t *testing.T) {
	t.Parallel()
	repo := repository(t)
	dir := clone(t, serve(t, repo))
	hash := func(kind string, content []byte) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "object")
		write(t, file, content)
		return must(t, dir, "hash-object", "-w", "--literally", "-t", kind, file)
	}
	tree := hash("tree", append([]byte("100644 .git\x00"), mustHex(t, hash("blob", []byte("x")))...))
	bad := must(t, dir, "commit-tree", "-m", "x", "-p", "HEAD", tree)
	if out, err := git(t, dir, authorised(token, "push", "origin", bad+":refs/heads/"+branch)...); err == nil {
		t.Errorf("the push was taken: %s", out)
	}
	must(t, dir, "update-ref", "refs/heads/"+branch, bad)
	bundle := filepath.Join(t.TempDir(), "work.bundle")
	must(t, dir, "bundle", "create", "-q", bundle, "main.."+branch)
	if _, err := localrepo.ImportBundle(t.Context(), repo, bundle, id, branch); err == nil {
		t.Error("the bundle was taken")
	}
	if out, err := git(t, repo, "rev-parse", "--verify", "-q", branch); err == nil {
		t.Errorf("the branch is there: %s", out)
	}
	// An ugly one of an old tool is not in the way.
	zero := append([]byte("040000 d\x00"), mustHex(t, must(t, dir, "rev-parse", "HEAD^{tree}"))...)
	ugly := must(t, dir, "commit-tree", "-m", "y", "-p", "HEAD", hash("tree", zero))
	must(t, dir, authorised(token, "push", "-q", "origin", ugly+":refs/heads/"+branch)...)
}

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
