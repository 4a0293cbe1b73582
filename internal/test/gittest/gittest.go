// Package gittest serves bare repositories over smart HTTP with basic
// authentication, by the real `git http-backend`. It is for tests only.
package gittest

import (
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Server is a forge as far as git sees it.
type Server struct {
	*httptest.Server
	Root string // directory of the bare repositories
	// backend is git's own program behind `git http-backend`, which would only start it.
	backend string
	Token   string // password of every user
	Down    atomic.Bool
	// Hold makes requests wait until it is false again or the client goes; Held counts them.
	Hold atomic.Bool
	Held atomic.Int32
	// Receives counts the pushes that were let in.
	Receives atomic.Int32
	// Received counts the bytes of all requests' bodies.
	Received atomic.Int64
}

// New starts a server on loopback that ends with the test.
func New(tb testing.TB, token string) *Server {
	tb.Helper()
	return NewAt(tb, token, "127.0.0.1")
}

// NewAt starts a server on an address of this machine, so that containers reach it.
func NewAt(tb testing.TB, token, host string) *Server {
	tb.Helper()
	ln, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Root: tb.TempDir(), Token: token, backend: filepath.Join(Git(tb, "", "--exec-path"), "git-http-backend")}
	s.Server = httptest.NewUnstartedServer(s)
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	tb.Cleanup(s.Close)
	return s
}

// Create makes a bare repository with one commit on main of the given files and returns its URL.
func (s *Server) Create(tb testing.TB, name string, files map[string]string) string {
	tb.Helper()
	work := tb.TempDir()
	for path, content := range files {
		full := filepath.Join(work, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	Git(tb, work, "init", "-q", "-b", "main")
	Git(tb, work, "add", "-A")
	Git(tb, work, "commit", "-q", "--allow-empty", "-m", "first")
	Git(tb, work, "clone", "-q", "--bare", work, filepath.Join(s.Root, name))
	Git(tb, filepath.Join(s.Root, name), "config", "http.receivepack", "true")
	return s.URL + "/" + name
}

// Repo is the bare repository as the server has it.
func (s *Server) Repo(name string) git.Repo {
	return git.Repo{Dir: filepath.Join(s.Root, name), Bare: true}
}

// Refuse makes a repository refuse pushes to one ref, as a forge's protection
// does; "" refuses nothing any more.
func (s *Server) Refuse(tb testing.TB, name, ref string) {
	tb.Helper()
	hooks := filepath.Join(s.Root, name, "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		tb.Fatal(err)
	}
	script := "#!/bin/sh\ntest \"$1\" != '" + ref + "'\n"
	if err := os.WriteFile(filepath.Join(hooks, "update"), []byte(script), 0o755); err != nil {
		tb.Fatal(err)
	}
}

// WithoutAtomic makes a repository unable to change several refs at once.
func (s *Server) WithoutAtomic(tb testing.TB, name string) {
	tb.Helper()
	Git(tb, filepath.Join(s.Root, name), "config", "receive.advertiseAtomic", "false")
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	if s.Hold.Load() {
		s.Held.Add(1)
		for s.Hold.Load() && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	_, pass, _ := r.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(pass), []byte(s.Token)) != 1 {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		s.Receives.Add(1)
	}
	// net/http/cgi refuses chunked bodies, which git uses above 1 MiB.
	body, err := os.CreateTemp("", "gittest-*")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer os.Remove(body.Name())
	defer body.Close()
	n, err := io.Copy(body, r.Body)
	s.Received.Add(n)
	if err == nil {
		_, err = body.Seek(0, io.SeekStart)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = body, n, nil
	h := cgi.Handler{
		Path: s.backend, Dir: s.Root, Stderr: io.Discard,
		Env: append([]string{
			"GIT_PROJECT_ROOT=" + s.Root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=test", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_NOSYSTEM=1",
		}, untidy...),
	}
	h.ServeHTTP(w, r)
}

// untidy keeps git from tidying up after itself: a process or two for each push and commit.
var untidy = []string{
	"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=maintenance.auto", "GIT_CONFIG_VALUE_0=false", "GIT_CONFIG_KEY_1=receive.autogc",
	"GIT_CONFIG_VALUE_1=false",
}

// Git runs git in dir with a fixed identity and returns its trimmed output.
func Git(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	out, err := proc.Output(tb.Context(), proc.Spec{
		Argv: append([]string{"git"}, args...), Dir: dir,
		Env: append([]string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
			"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.org",
		}, untidy...),
	})
	if err != nil {
		tb.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}
