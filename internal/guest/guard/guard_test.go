package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
)

// patience bounds every wait of these tests; it is no measure of speed.
const patience = 30 * time.Second

// engine is a stand-in that records what reaches it.
type engine struct {
	path  string
	dials atomic.Int64
	mu    sync.Mutex
	seen  []seen
}

type seen struct {
	method, uri, body string
	header            http.Header
}

// countListener counts connections: a refused request must not make one.
type countListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

func newEngine(t *testing.T, h http.HandlerFunc) *engine {
	t.Helper()
	e := &engine{path: filepath.Join(shortDir(t), "engine.sock")}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", e.path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h != nil {
			h(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/json") && strings.HasPrefix(r.URL.Path, "/containers/bound") {
			_, _ = io.WriteString(w, `{"Id":"0123","Mounts":[{"Type":"bind","Source":"/work/sub"}]}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/json") && strings.HasPrefix(r.URL.Path, "/containers/free") {
			_, _ = io.WriteString(w, `{"Id":"4567","Mounts":[{"Type":"volume","Source":"/var/lib/x"},{"Type":"bind","Source":"/var/run/docker.sock"}]}`)
			return
		}
		if r.RequestURI == "/containers/json?all=1" { // the guard's own question
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		b, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.seen = append(e.seen, seen{r.Method, r.RequestURI, string(b), r.Header})
		e.mu.Unlock()
	})}
	go func() { _ = srv.Serve(countListener{ln, &e.dials}) }()
	t.Cleanup(func() { _ = srv.Close() })
	return e
}

func (e *engine) last() seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) == 0 {
		return seen{}
	}
	return e.seen[len(e.seen)-1]
}

// shortDir is a folder whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	//nolint:usetesting // t.TempDir has the test's name in it, which is too long for a socket's address
	dir, err := os.MkdirTemp("", "guard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

type fixture struct {
	*guard.Guard
	socket  string
	work    string // the workspace
	refused atomic.Int64
	http    *http.Client
}

var boxTaken = []netip.Prefix{netip.MustParsePrefix("172.17.0.0/16"), netip.MustParsePrefix("10.1.2.3/32")}

func newGuard(t *testing.T, upstream string) *fixture {
	t.Helper()
	f := makeGuard(t, upstream)
	f.listen(t)
	return f
}

// makeGuard makes a guard that does not listen yet.
func makeGuard(t *testing.T, upstream string) *fixture {
	t.Helper()
	f := &fixture{socket: filepath.Join(shortDir(t), "docker.sock"), work: shortDir(t)}
	// In a directory of root that no other user may pass, a client may bind nothing.
	if err := os.Chmod(f.work, 0o755); err != nil { // readable by all, like the workspace
		t.Fatal(err)
	}
	f.Guard = guard.New(guard.Config{
		Socket: f.socket, GID: os.Getgid(), Upstream: upstream, Binds: []string{f.work}, Mounts: filepath.Join(shortDir(t), "mounts"),
		By:      func(pid int) string { return fmt.Sprintf("pid %d", pid) },
		Refused: func(_, _, _ string) { f.refused.Add(1) },
		Log:     slog.New(slog.DiscardHandler),
	}).Unprivileged(boxTaken)
	return f
}

func (f *fixture) listen(t *testing.T) {
	t.Helper()
	if err := f.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.http = &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", f.socket)
	}}}
	t.Cleanup(f.http.CloseIdleConnections)
}

func dialUnix(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UnixConn)
}

// raw sends bytes and returns the responses.
func (f *fixture) raw(t *testing.T, s string, n int) []*http.Response {
	t.Helper()
	c := dialUnix(t, f.socket)
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	var out []*http.Response
	for range n {
		r, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("after %d responses: %v", len(out), err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		out = append(out, r)
	}
	return out
}

func message(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	var m struct{ Message string }
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		t.Fatalf("no error as Docker's: %v", err)
	}
	return m.Message
}

type requestCase struct {
	rule string // "" : allowed
	req  string // METHOD PATH
	body string
	ct   string
	want string // what is forwarded, of allowed bodies, with the client's sources; "" : not looked at

	mounted string // what is mounted of its bind; "": not looked at
}

func host(s string) requestCase {
	return requestCase{req: "POST /v1.41/containers/create", body: `{"Image":"x","HostConfig":{` + s + `}}`}
}

func no(rule string, c requestCase) requestCase { c.rule = rule; return c }

func yes(want string, c requestCase) requestCase { c.want = want; return c }

func call(req, body string) requestCase { return requestCase{req: req, body: body} }

// shown is a text with the client's sources.
func (f *fixture) shown(t *testing.T, s string) string {
	t.Helper()
	b, err := io.ReadAll(f.Shown(strings.NewReader(s)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sourceOf is the source of the only mount of a body.
func sourceOf(body string) string {
	var b struct {
		HostConfig struct{ Mounts []struct{ Source string } }
	}
	if json.Unmarshal([]byte(body), &b) != nil || len(b.HostConfig.Mounts) != 1 {
		return ""
	}
	return b.HostConfig.Mounts[0].Source
}

func TestRules(t *testing.T) {
	e := newEngine(t, nil)
	f := makeGuard(t, e.path)
	f.NoSweeps() // they connect to the engine, too
	f.listen(t)
	covered := map[string]bool{}
	for _, c := range cases(f.work) {
		t.Run(c.rule+" "+c.req+" "+c.body, func(t *testing.T) {
			method, target, _ := strings.Cut(c.req, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+target, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			if c.ct != "" {
				r.Header.Set("Content-Type", c.ct)
			}
			dials, told := e.dials.Load(), f.refused.Load()
			resp, err := f.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if c.rule == "" {
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("%s: %s", resp.Status, message(t, resp))
				}
				got := e.last().body
				if source := sourceOf(got); source != "" && c.mounted != "" {
					if target, err := os.Readlink(source); target != c.mounted {
						t.Errorf("mounted %q (%v), want %q", target, err, c.mounted)
					}
				}
				if got := f.shown(t, got); c.want != "" && got != c.want {
					t.Fatalf("forwarded %s\nwant      %s", got, c.want)
				}
				return
			}
			first := !covered[c.rule]
			covered[c.rule] = true
			if resp.StatusCode != http.StatusForbidden {
				t.Fatalf("got %s, forwarded %s", resp.Status, e.last().body)
			}
			if method == http.MethodHead {
				return // its answer has no body
			}
			if m := message(t, resp); !strings.HasPrefix(m, "sandbox-agent guard: rule "+c.rule+": ") {
				t.Fatal(m)
			}
			if e.dials.Load() != dials && c.rule != "archive-bind" && c.rule != "bind-limit" {
				t.Error("the engine was connected to for a refused request")
			}
			if got := f.refused.Load() != told; got != first {
				t.Errorf("told: %v, the first of its rule: %v", got, first)
			}
		})
	}
	for name, instead := range guard.Rules {
		if !covered[name] {
			t.Errorf("no test breaks the rule %s", name)
		}
		if instead == "" {
			t.Errorf("rule %s does not explain itself", name)
		}
		delete(covered, name)
	}
	if len(covered) > 0 {
		t.Errorf("not in the table: %v", covered)
	}
	counted := f.Refusals()
	if len(counted) != len(guard.Rules) {
		t.Errorf("%d rules were counted, want %d", len(counted), len(guard.Rules))
	}
	for _, r := range counted {
		if r.Count < 1 || r.Text == "" || r.By != fmt.Sprintf("pid %d", os.Getpid()) {
			t.Errorf("%+v", r)
		}
	}
}

func ownerOf(fi os.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}
