package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// bounded is a gateway with a repository behind it.
func bounded(t *testing.T, b gitBounds) (by, host string) {
	t.Helper()
	srv := gittest.New(t, "")
	url := srv.Create(t, "r.git", map[string]string{"a": "1"})
	g := &Git{
		Remote: url, Mirror: filepath.Join(srv.Root, "r.git"), Log: slog.New(slog.DiscardHandler),
		Refresh: func(context.Context) error { return nil }, bounds: b,
	}
	by, err := g.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return by, strings.TrimSuffix(strings.TrimPrefix(by, "http://"), prefix)
}

// half begins a request whose body does not come.
func half(t *testing.T, host string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const head = "POST " + prefix + "/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-git-upload-pack-request\r\nContent-Length: 1000\r\n\r\n0011"
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return c
}

// Who holds all the places that there are keeps others waiting for a bounded time, and gives them back when his own is over.
func TestGitPlaces(t *testing.T) {
	t.Parallel()
	const forEver = time.Hour
	by, host := bounded(t, gitBounds{served: 2, conns: 1000, wait: time.Millisecond, body: forEver, run: forEver, write: forEver})
	status := func() (int, string) {
		resp, err := http.Get(by + "/info/refs?service=git-upload-pack") //nolint:noctx // a test's request to loopback
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	if code, _ := status(); code != http.StatusOK {
		t.Fatalf("at the beginning: %d", code)
	}
	var held []net.Conn
	waitFor(t, "the places to be taken", func() bool {
		held = append(held, half(t, host)) // one that comes while another is at it does not get a place
		code, again := status()
		return code == http.StatusServiceUnavailable && again != ""
	})
	for _, c := range held {
		_ = c.Close()
	}
	waitFor(t, "a place", func() bool { code, _ := status(); return code == http.StatusOK })
}

// A body that does not come ends by itself, and real git then reads.
func TestGitSlowBody(t *testing.T) {
	t.Parallel()
	by, host := bounded(t, gitBounds{served: 1, conns: 8, wait: time.Hour, body: 50 * time.Millisecond, run: time.Hour, write: time.Hour})
	c := half(t, host)
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		t.Errorf("%v %.200s", err, answer)
	}
	if out, err := agentGit(t, "/dev/null", "ls-remote", by); err != nil || !strings.Contains(out, "refs/heads/main") {
		t.Errorf("%v %s", err, out)
	}
	// Git's work after reading the body has the time of a run.
	if out, err := agentGit(t, "/dev/null", "clone", "-q", by, filepath.Join(t.TempDir(), "c")); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

// A process that does not end, because its client takes nothing, ends.
func TestGitRunTime(t *testing.T) {
	t.Parallel()
	_, host := bounded(t, gitBounds{served: 1, conns: 8, wait: time.Hour, body: time.Hour, run: 50 * time.Millisecond, write: time.Hour})
	c := half(t, host)
	if answer, err := io.ReadAll(c); err != nil || bytes.Contains(answer, []byte(" 200 ")) {
		t.Errorf("%v %.200s", err, answer)
	}
}

// A small body's unpacked size is bounded as a large one's is.
func TestGitLargeBody(t *testing.T) {
	t.Parallel()
	by, _ := bounded(t, gitBounds{})
	const fetch = "0011command=fetch0001"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	line := []byte("0032have " + strings.Repeat("1", 40) + "\n")
	plain := append([]byte(fetch), bytes.Repeat(line, maxGitBody/len(line)+1)...)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		encoding string
		body     []byte
	}{"packed": {"gzip", packed.Bytes()}, "plain": {"", plain}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, by+"/git-upload-pack", bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", c.encoding)
		req.Header.Set("Git-Protocol", "version=2")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		resp.Body.Close()
		t.Log(name, resp.StatusCode)
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

// git may end a moment before the end of its request was read: what comes after that on the same connection would be given up
// with it, so that each request for a pack has a connection of its own.
func TestPackRequestEndsItsConnection(t *testing.T) {
	t.Parallel()
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	gittest.Git(t, ".", "init", "-q", "--bare", mirror)
	g := &Git{Remote: "https://git.example/r.git", Mirror: mirror, Log: slog.New(slog.DiscardHandler), Refresh: func(context.Context) error { return nil }}
	by, err := g.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, by+"/git-upload-pack", strings.NewReader("0014command=ls-refs\n0000"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Git-Protocol", "version=2")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("%s, and the connection stays: %v", resp.Status, !resp.Close)
	}
}
