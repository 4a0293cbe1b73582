package browse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runner runs a shell command as a development server; the file has the process's id.
func runner(line, file string, port int) func(context.Context) Ended {
	return func(ctx context.Context) Ended {
		tail := proc.NewTail(4000)
		err := proc.Run(ctx, proc.Spec{
			Argv: []string{"/bin/sh", "-c", "echo $$ >'" + file + "'; " + line}, Env: append(os.Environ(), fmt.Sprintf("PORT=%d", port)),
			Stdout: tail, Stderr: tail, StopSignal: syscall.SIGTERM, Grace: time.Second,
		})
		return Ended{ExitCode: proc.ExitCode(err), Tail: tail.String(), Err: err}
	}
}

// ports are those that free has given.
var ports sync.Map

// free returns a port at which nothing listens. The kernel does not assign it to programs that ask for any
// port, as other tests do all the time.
func free(t *testing.T) int {
	t.Helper()
	for {
		port := 20000 + rand.IntN(10000)
		if _, given := ports.LoadOrStore(port, true); given {
			continue
		}
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
}

// gone waits until nothing of the server's group runs. Who was killed may be a zombie for long: this machine's init reaps it or not.
func gone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	group := strings.TrimSpace(string(b))
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var alive []string
		all, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			stat, err := os.ReadFile(p)
			if err != nil {
				continue
			}
			if f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); f[0] != "Z" && f[2] == group {
				alive = append(alive, string(stat))
			}
		}
		if len(alive) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still run: %q", alive)
		}
	}
}

// A server is waited for, also while it answers with 503, and stopped with all of its group.
func TestServe(t *testing.T) {
	t.Parallel()
	pid, port := filepath.Join(t.TempDir(), "pid"), free(t)
	const program = `
import http.server, os
n = 0
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        global n; n += 1
        self.send_response(503 if n < 3 or self.path != "/health?a=b" else 404); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
`
	s, err := Serve(t.Context(), &workorder.Dev{Port: port, ReadyPath: "/health?a=b"}, runner("python3 -c '"+program+"' & wait", pid, port))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("http://127.0.0.1:%d", port); s.Origin != want {
		t.Errorf("%q", s.Origin)
	}
	s.Stop()
	gone(t, pid)
	if taken(t.Context(), port) != "" {
		t.Error("the port is still taken")
	}
}

// A server that does not get ready is reported with its own output, and leaves nothing behind.
func TestServeFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line    string
		seconds float64 // to start
		want    []string
	}{
		"dies":         {"echo cannot find module express; exit 3", 60, []string{" 3 ", "cannot find module express", "dev.command"}},
		"ends at once": {"true", 60, []string{" 0 ", "dev.command"}},
		"never ready":  {"echo compiling; sleep 600 & wait", 5, []string{" 5s:", "compiling", "dev.start_timeout"}},
		"only errors": {`exec python3 -c 'import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(500); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()'`, 10, []string{"500", " 10s:"}}, // python takes a while
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pid, port := filepath.Join(t.TempDir(), "pid"), free(t)
			s, err := Serve(t.Context(), &workorder.Dev{Port: port, StartTimeoutSeconds: c.seconds}, runner(c.line, pid, port))
			if err == nil {
				s.Stop()
				t.Fatal("it is ready")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			gone(t, pid)
		})
	}
}

func TestServePortTaken(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	port := other.Listener.Addr().(*net.TCPAddr).Port
	_, err := Serve(t.Context(), &workorder.Dev{Port: port}, func(context.Context) Ended {
		t.Error("it was started")
		return Ended{}
	})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(" %d ", port)) {
		t.Error(err)
	}
}

// A stop of the run ends the wait.
func TestServeStopped(t *testing.T) {
	t.Parallel()
	pid, port := filepath.Join(t.TempDir(), "pid"), free(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if b, err := os.ReadFile(pid); err == nil && len(b) > 0 {
				cancel(errLeft)
			}
		}
	}()
	_, err := Serve(ctx, &workorder.Dev{Port: port}, runner("sleep 600", pid, port))
	if !errors.Is(err, errLeft) {
		t.Error(err)
	}
	gone(t, pid)
}

var errLeft = errors.New("the run is stopped")

// A stop ends the server as well: whichever is seen first, the stop is the reported reason.
func TestServeStoppedAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := Serve(ctx, &workorder.Dev{Port: free(t)}, func(ctx context.Context) Ended {
			cancel(errLeft)
			<-ctx.Done()
			return Ended{ExitCode: 143}
		})
		if !errors.Is(err, errLeft) {
			t.Fatal(err)
		}
	}
}

func TestRooted(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"/": true, "/a?b=c#d": true, "//example.org/": true, "": false, "a": false, "@example.org/": false, ".example.org/": false, "0/": false, "/\n": false,
	} {
		if got := rooted(p); got != want {
			t.Errorf("%q: %v", p, got)
		}
	}
}
