//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

type poolLease struct{ ID, Sandbox string }

// servePool serves a pool until the test's end.
func (u *user) servePool(args ...string) *started {
	u.t.Helper()
	p := u.start("", append([]string{"pool", "serve", "--allow-mount", u.dir + ":ro"}, args...)...)
	p.waitFor("the pool is at ")
	return p
}

// stopped stops it, and it ends with that code.
func (s *started) stopped(code int) {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	if c := s.wait(); c.code != code {
		s.t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}

func (u *user) poolStats() (s pool.Stats) {
	u.t.Helper()
	c := u.run("", "pool", "stats", "--json")
	if err := json.Unmarshal([]byte(c.stdout), &s); err != nil || c.code != 0 {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return s
}

func (u *user) acquire(args ...string) (l poolLease) {
	u.t.Helper()
	c := u.run("", append([]string{"pool", "acquire", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(c.stdout), &l); err != nil || c.code != 0 {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return l
}

// Other programs ask at a port, with the token of a file that is this user's alone, whatever was there before; and input need not be a text.
func TestPoolListen(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	file := filepath.Join(u.state, "pool.token")
	if err := errors.Join(os.MkdirAll(u.state, 0o700), os.WriteFile(file, []byte("of-a-former-pool-that-all-know\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p := u.servePool("--max", "1", "--listen", "127.0.0.1:0")
	p.waitFor("and at ")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(p.errOut.String())
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for shown, want := range map[string]int{string(token): http.StatusOK, "of-a-former-pool-that-all-know": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/stats", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(shown))
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("%q: %s", shown, got.Status)
		}
	}
	l := u.acquire()
	for input, want := range map[string]string{"\xff\x00\n": "ff 00 0a", "é": "c3 a9"} {
		if c := u.run(input, "pool", "exec", l.ID, "--", "od", "-An", "-tx1"); strings.TrimSpace(c.stdout) != want {
			t.Errorf("%q: %d, %s", input, c.code, c.stdout)
		}
	}
	if c := u.run(strings.Repeat("\x00", 16<<20), "pool", "exec", l.ID, "--", "wc", "-c"); strings.TrimSpace(c.stdout) != "16777216" {
		t.Errorf("%d, %s", c.code, c.stdout)
	}
	p.stopped(0)
}

// What is clean is lent again, and what cannot be made clean is thrown away; all is gone with the pool. What a lease leaves is in TestLeaseAttack.
func TestPool(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	p := u.servePool("--max", "2")
	if s := u.poolStats(); s != (pool.Stats{Max: 2, Reuse: pool.ReuseClean}) {
		t.Errorf("%+v", s)
	}
	first := u.acquire()
	if c := u.run("", "pool", "release", first.ID); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	if s := u.poolStats(); s != (pool.Stats{Idle: 1, Total: 1, Max: 2, Reuse: pool.ReuseClean}) {
		t.Errorf("%+v", s)
	}
	second := u.acquire()
	if second.Sandbox != first.Sandbox {
		t.Error("a sandbox that was clean was not lent again")
	}
	// Its limits are the sandbox's.
	if c := u.run("", "pool", "exec", second.ID, "--json", "--", "python3", "-c", "x = 'x' * 2**30"); !strings.Contains(c.stdout, `"out_of_memory": true`) {
		t.Errorf("%s", c.stdout)
	}
	if c := u.run("", "pool", "release", second.ID); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	third := u.acquire()
	if third.Sandbox == second.Sandbox {
		t.Error("a sandbox was lent again whose memory was used up")
	}
	if c := u.run("", "pool", "exec", third.ID, "--timeout", "500ms", "--", "sh", "-c", "setsid sleep 998 & sleep 998"); c.code != 124 {
		t.Errorf("exit code %d", c.code)
	}
	if c := u.run("", "pool", "release", third.ID); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	fourth := u.acquire("--trust", "trusted")
	if fourth.Sandbox == third.Sandbox {
		t.Error("a sandbox was lent again whose command was out of time")
	}
	fifth := u.acquire()
	if c := u.run("", "pool", "acquire"); c.code != 1 {
		t.Errorf("a third of two: exit code %d", c.code)
	}
	if c := u.run("", "pool", "release", "L-nothere"); c.code != 2 {
		t.Errorf("exit code %d", c.code)
	}
	p.stopped(0)
	for _, l := range []poolLease{first, third, fourth, fifth} {
		if left := u.sandboxesOf(l.Sandbox); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if c := u.run("", "pool", "stats"); c.code != 5 {
		t.Errorf("without a pool: exit code %d", c.code)
	}
}

// Code runs in fresh places of both kinds, and in sessions that the next call finds.
func TestRunCode(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"jail", "container"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			run := func(want string, code int, args ...string) {
				t.Helper()
				c := u.run("", append([]string{"run", "--runtime", kind}, args...)...)
				if c.code != code || c.stdout != want {
					t.Errorf("%q: exit code %d, %q", args, c.code, c.stdout)
				}
			}
			run("42\n", 0, "--env", "python", "print(6 * 7)")
			run("42\n", 0, "--env", "node", "console.log(6 * 7)")
			run("/workspace\n0\n", 3, "--env", "shell", "pwd; ls -A | wc -l; exit 3")
			run("", 124, "--env", "shell", "--timeout", "500ms", "sleep 60")
			long := u.start("", "run", "--runtime", kind, "--env", "shell", "echo begun; sleep 60")
			long.waitFor("begun")
			long.stopped(143)
			run("", 0, "--env", "python", "--session", "s", "x = 1")
			run("2\n", 0, "--env", "python", "--session", "s", "x + 1")
			run("", 64, "--env", "node", "--session", "s", "1")
			run("", 2, "--env", "cobol", "1")
			if c := u.run("", "session", "list", "--json"); c.code != 0 || !strings.Contains(c.stdout, `"id": "s"`) {
				t.Errorf("exit code %d, %s", c.code, c.stdout)
			}
			if c := u.run("", "session", "rm", "s"); c.code != 0 {
				t.Errorf("exit code %d", c.code)
			}
			if c := u.run("", "session", "rm", "s"); c.code != 2 {
				t.Errorf("a second time: exit code %d", c.code)
			}
		})
	}
}

// An agent's client speaks the protocol, and nothing else is on standard output.
func TestMCP(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	lines := []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"env":"python","session":"s","code":"x = 6"}}}`,
	}
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer in.Close()
	p := u.startWith(in, "mcp")
	answered := func(n int) []string {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if got := strings.Split(strings.TrimSpace(p.out.String()), "\n"); len(got) >= n && p.out.String() != "" || time.Now().After(deadline) {
				return got
			}
		}
	}
	for _, l := range lines {
		if _, err := keys.WriteString(l + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	answered(2)
	if _, err := keys.WriteString(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run","arguments":{"env":"python","session":"s","code":"print(x * 7)"}}}` + "\n" +
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"run","arguments":{"env":"cobol","code":""}}}` + "\n"); err != nil {
		t.Fatal(err)
	}
	var text string
	var code int
	for _, l := range answered(4) {
		var m struct {
			ID     int
			Result struct{ Content []struct{ Text string } }
			Error  struct{ Code int }
		}
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Errorf("%q: %v", l, err)
		}
		if m.ID == 3 && len(m.Result.Content) == 1 {
			text = m.Result.Content[0].Text
		}
		if m.ID == 4 {
			code = m.Error.Code
		}
	}
	if text != "42\n" || code != -32602 {
		t.Errorf("%q, %d: %s", text, code, p.out.String())
	}
	_ = keys.Close()
	if c := p.wait(); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
	if entries, err := os.ReadDir(filepath.Join(u.state, "sandboxes")); err == nil {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "session-") {
				t.Errorf("%s is left", e.Name())
			}
		}
	}
}
