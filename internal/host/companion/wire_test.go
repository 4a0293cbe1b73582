package companion_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
)

// wire is a neighbour on the bridge who hears all that is said with an address.
type wire struct {
	net.Listener
	to    string
	mu    sync.Mutex
	heard bytes.Buffer
}

func tap(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: ln, to: to}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go w.pass(c)
		}
	}()
	return w
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard.Write(b)
}

func (w *wire) pass(c net.Conn) {
	defer c.Close()
	up, err := (&net.Dialer{Timeout: time.Minute}).DialContext(context.Background(), "tcp", w.to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(up, io.TeeReader(c, w)); up.Close() }()
	_, _ = io.Copy(c, io.TeeReader(up, w))
}

// Only a box and its local repository see their exchange, and no third party can take the repository's place.
func TestNeighbourOnTheBridge(t *testing.T) {
	t.Parallel()
	const token, secret, branch = "token-0123456789abcdef", "the code that nobody else may read", "refs/heads/agent/" + id
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "f"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, work, "init", "-q", "-b", "main")
	gittest.Git(t, work, "add", "f")
	gittest.Git(t, work, "-c", "core.looseCompression=0", "commit", "-qm", secret)
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(b *runtimetest.Box) int { <-b.Stopped; return 0 }})
	ready, end := serve(t, fake, companion.Config{TaskID: id, Dir: t.TempDir(), Repo: work, TargetBranch: "agent/" + id, Listen: "127.0.0.1:0", Token: token})
	box := run(t, fake)
	at := fmt.Sprintf("127.0.0.1:%d", ready.Port)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(ready.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(addr string) (git.Repo, string) {
		url := "https://" + addr + "/repo.git"
		dir := filepath.Join(t.TempDir(), "mirror")
		gittest.Git(t, ".", "init", "-q", "--bare", dir)
		return git.Repo{Dir: dir, Bare: true, Auth: &git.Auth{URL: url, Username: "sandbox", Token: token, CAFile: ca}}, url
	}

	w := tap(t, at)
	mirror, url := open(w.Addr().String())
	if err := mirror.Run(t.Context(), "fetch", "-q", url, "+refs/heads/main:refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	if err := mirror.Run(t.Context(), "push", "-q", url, "main:"+branch); err != nil {
		t.Fatal(err)
	}
	if got, want := gittest.Git(t, work, "rev-parse", branch), gittest.Git(t, mirror.Dir, "rev-parse", "main"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	w.mu.Lock()
	heard := w.heard.Bytes()
	if len(heard) < 500 {
		t.Errorf("heard %d bytes", len(heard))
	}
	for _, s := range []string{token, secret, "Authorization", "refs/heads"} {
		if bytes.Contains(heard, []byte(s)) {
			t.Errorf("a neighbour hears %q", s)
		}
	}
	w.mu.Unlock()

	var asked atomic.Int32
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("WWW-Authenticate", `Basic realm="sandbox-agent"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer impostor.Close()
	// A machine that would take the impostor's word.
	theirs := filepath.Join(t.TempDir(), "theirs.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: impostor.Certificate().Raw})
	if err := os.WriteFile(theirs, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	mirror, url = open(strings.TrimPrefix(impostor.URL, "https://"))
	if err := mirror.Run(t.Context(), "-c", "http.sslCAInfo="+theirs, "ls-remote", url); err == nil || asked.Load() != 0 {
		t.Errorf("git spoke to an impostor %d times: %v", asked.Load(), err)
	}
	mirror.Auth.CAFile = theirs
	if err := mirror.Run(t.Context(), "ls-remote", url); err == nil || asked.Load() == 0 {
		t.Errorf("the impostor is none that could be spoken to: %v", err) // else the test above shows nothing
	}

	if resp, err := http.Get("http://" + at + "/repo.git/info/refs?service=git-upload-pack"); err == nil { //nolint:noctx // a test's request to loopback
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %d %q %v", resp.StatusCode, b, err)
		}
	}
	if err := errors.Join(fake.Stop(t.Context(), box, time.Minute), <-end); err != nil {
		t.Error(err)
	}
}
