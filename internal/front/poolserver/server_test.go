package poolserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// serve serves a pool of nothing at a socket and, with a token, at a port, and returns where both are.
func serve(t *testing.T, token string) (socket, address string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir(), Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- New(pool.New(m, pool.Options{}), 0, 0, nil, nil).Serve(ctx, Listener{Listener: l}, Listener{tcp, token})
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, m.Close()); err != nil {
			t.Error(err)
		}
	})
	return socket, tcp.Addr().String()
}

// Only what a server has left that was killed is replaced by a socket.
func TestListen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	listen := func() (*net.UnixListener, error) {
		l, err := Listen(t.Context(), path)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.(*net.UnixListener), nil
	}
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := listen(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("somebody serves there: %v", err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := listen(); err != nil {
		t.Errorf("it was left: %v", err)
	}
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a file: %v", err)
	}
}

// Requests that are wrong are answered with what is wrong, and make nothing.
func TestRequests(t *testing.T) {
	t.Parallel()
	_, address := serve(t, "secret")
	for name, row := range map[string]struct {
		method, path, body, token string
		status                    int
		kind                      Kind
	}{
		"no token":        {"GET", "/v1/stats", "", "", http.StatusUnauthorized, KindInvalid},
		"another token":   {"GET", "/v1/stats", "", "other", http.StatusUnauthorized, KindInvalid},
		"stats":           {"GET", "/v1/stats", "", "secret", http.StatusOK, ""},
		"list":            {"GET", "/v1/leases", "", "secret", http.StatusOK, ""},
		"unknown field":   {"POST", "/v1/leases", `{"colour": 1}`, "secret", http.StatusBadRequest, KindInvalid},
		"wrong type":      {"POST", "/v1/leases", `{"trust": 1}`, "secret", http.StatusBadRequest, KindInvalid},
		"no JSON":         {"POST", "/v1/leases", `{`, "secret", http.StatusBadRequest, KindInvalid},
		"two documents":   {"POST", "/v1/leases", `{}{}`, "secret", http.StatusBadRequest, KindInvalid},
		"unknown trust":   {"POST", "/v1/leases", `{"trust": "root"}`, "secret", http.StatusBadRequest, KindInvalid},
		"unknown lease":   {"POST", "/v1/leases/L-x/exec", `{"command": "true"}`, "secret", http.StatusNotFound, KindNotFound},
		"no command":      {"POST", "/v1/leases/L-x/exec", `{}`, "secret", http.StatusBadRequest, KindInvalid},
		"two commands":    {"POST", "/v1/leases/L-x/exec", `{"command": "true", "argv": ["true"]}`, "secret", http.StatusBadRequest, KindInvalid},
		"two inputs":      {"POST", "/v1/leases/L-x/exec", `{"command": "cat", "stdin": "a", "stdin_base64": "YQ=="}`, "secret", http.StatusBadRequest, KindInvalid},
		"no base64":       {"POST", "/v1/leases/L-x/exec", `{"command": "cat", "stdin_base64": "%"}`, "secret", http.StatusBadRequest, KindInvalid},
		"a long time":     {"POST", "/v1/leases/L-x/exec", `{"command": "true", "timeout_seconds": 1e300}`, "secret", http.StatusBadRequest, KindInvalid},
		"less than none":  {"POST", "/v1/leases/L-x/exec", `{"command": "true", "timeout_seconds": -1}`, "secret", http.StatusBadRequest, KindInvalid},
		"much output":     {"POST", "/v1/leases/L-x/exec", `{"command": "true", "max_output": 9223372036854775807}`, "secret", http.StatusBadRequest, KindInvalid},
		"a large body":    {"POST", "/v1/leases", strings.Repeat(" ", maxDocument+1), "secret", http.StatusBadRequest, KindInvalid},
		"a stranger's":    {"POST", "/v1/leases", strings.Repeat(" ", 64<<10), "", http.StatusUnauthorized, KindInvalid},
		"a wrong limit":   {"POST", "/v1/leases", `{"runtime": "jail", "limits": {"cpus": -3}}`, "secret", http.StatusBadRequest, KindInvalid},
		"release of none": {"DELETE", "/v1/leases/L-x", "", "secret", http.StatusNotFound, KindNotFound},
		"destroy again":   {"DELETE", "/v1/leases/L-x?destroy=1", "", "secret", http.StatusOK, ""},
		"destroy no ID":   {"DELETE", "/v1/leases/x?destroy=1", "", "secret", http.StatusBadRequest, KindInvalid},
		"a wrong rule":    {"POST", "/v1/leases", `{"runtime": "jail", "allow": ["a b"]}`, "secret", http.StatusBadRequest, KindInvalid},
		"a wrong time":    {"POST", "/v1/leases", `{"runtime": "jail", "timeout_seconds": -1}`, "secret", http.StatusBadRequest, KindInvalid},
		"destroy all":     {"DELETE", "/v1/leases", "", "secret", http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), row.method, "http://"+address+row.path, strings.NewReader(row.body))
			if err != nil {
				t.Fatal(err)
			}
			if row.token != "" {
				r.Header.Set("Authorization", "Bearer "+row.token)
			}
			got, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			var e Error
			if row.kind != "" {
				err = json.NewDecoder(got.Body).Decode(&e)
			}
			if err != nil || got.StatusCode != row.status || e.Kind != row.kind {
				t.Errorf("%d, %+v, %v", got.StatusCode, e, err)
			}
		})
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, "secret")
	c := Dial(socket)
	if s, err := c.Stats(t.Context()); err != nil || s != (pool.Stats{Max: pool.DefaultMax, Reuse: pool.ReuseClean}) {
		t.Errorf("%+v, %v", s, err)
	}
	if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	_, err := c.Exec(t.Context(), "L-x", ExecRequest{Command: "true"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != KindNotFound {
		t.Error(err)
	}
	if _, err := Dial(filepath.Join(t.TempDir(), "none")).Stats(t.Context()); !errors.Is(err, ErrNotServing) {
		t.Error(err)
	}
}

// What a command prints comes as it is, all of it where it is streamed, and its end is known. A sandbox that does not answer is given up.
func TestExec(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, "secret")
	c := Dial(socket)
	l, err := c.Acquire(t.Context(), Request{Spec: pool.Spec{Runtime: sandbox.RuntimeJail}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Exec(t.Context(), l.ID, ExecRequest{Command: `printf 'caf\351'; printf 'ok' >&2`})
	if err != nil || string(r.Output()) != "caf\xe9" || string(r.Errors()) != "ok" || r.StderrBytes != nil || r.Stdout != "caf\uFFFD" {
		t.Errorf("%+v, %v", r, err)
	}
	var out, errOut bytes.Buffer
	r, err = c.ExecTo(t.Context(), l.ID, ExecRequest{Command: `head -c 3000000 /dev/zero | tr '\0' '\377'; echo no >&2; exit 3`}, &out, &errOut)
	if err != nil || r.ExitCode != 3 || !bytes.Equal(out.Bytes(), bytes.Repeat([]byte{0xff}, 3_000_000)) || errOut.String() != "no\n" {
		t.Errorf("%+v, %d bytes, %q, %v", r, out.Len(), errOut.String(), err)
	}
	if e, ok := errors.AsType[*Error](second(c.ExecTo(t.Context(), "L-none", ExecRequest{Command: "true"}, &out, &errOut))); !ok || e.Kind != KindNotFound {
		t.Error(e)
	}
	if e, ok := errors.AsType[*Error](second(c.ExecTo(t.Context(), l.ID, ExecRequest{Argv: []string{""}}, &out, &errOut))); !ok || e.Kind != KindInvalid {
		t.Error(e)
	}
}

// A lease's limit is that of its commands, also for the client's patience. The last line is parsed on request.
func TestLeaseLimit(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, "secret")
	c := Dial(socket)
	l, err := c.Acquire(t.Context(), Request{Spec: pool.Spec{Runtime: sandbox.RuntimeJail}, TimeoutSeconds: 1})
	if err != nil || l.TimeoutSeconds != 1 {
		t.Fatal(l, err)
	}
	if got := c.execWithin(t.Context(), l.ID, ExecRequest{}); got != time.Second+execPatience {
		t.Error(got)
	}
	for command, want := range map[string]string{
		`echo log; echo '{"a": 1}'; echo`: `{"a":1}`, "echo 7": "7", "echo text": "", "true": "", `printf '{"a"'`: "",
	} {
		r, err := c.Exec(t.Context(), l.ID, ExecRequest{Command: command, ParseJSON: true})
		if err != nil || string(r.JSON) != want {
			t.Errorf("%s: %s, %v", command, r.JSON, err)
		}
	}
	if r, err := c.Exec(t.Context(), l.ID, ExecRequest{Command: "sleep 600"}); err != nil || !r.TimedOut {
		t.Errorf("%+v, %v", r, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A server that takes connections and answers nothing is not waited for longer than the command may take.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Dial(socket).do(t.Context(), time.Millisecond, http.MethodGet, "/v1/stats", nil, nil); err == nil || errors.Is(err, ErrNotServing) {
		t.Error(err)
	}
	if got := Dial(socket).execWithin(t.Context(), "L-x", ExecRequest{TimeoutSeconds: 3}); got != 3*time.Second+execPatience {
		t.Error(got)
	}
}
