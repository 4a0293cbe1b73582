package code

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// open is a runner of jails; they need bubblewrap and the guest's program.
func open(t *testing.T, o Options) *Runner {
	t.Helper()
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if i := m.Runtimes(t.Context(), sandbox.RuntimeJail); !i[0].Healthy {
		t.Skipf("no jail can be made here: %s", i[0].Reason)
	}
	r := NewRunner(m, o)
	t.Cleanup(func() {
		if err := errors.Join(r.Close(context.WithoutCancel(t.Context())), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for interpreter, want := range map[string]string{
		"python3 -c": "python3 -", "node -e": "node -", "bash -c": `bash -c eval "$(cat)"`, "bash -s": "bash -s",
		"awk -e": `sh -c exec "$@" "$(cat)" sh awk -e`,
	} {
		words := strings.Fields(interpreter)
		got, err := Preset{Interpreter: words, CodeArgument: TakesCodeArgument(words)}.Argv(10)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", interpreter, got, err)
		}
	}
	if _, err := (Preset{Interpreter: []string{"awk", "-e"}, CodeArgument: true}).Argv(200 << 10); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Result{
		"out":                        {Stdout: "out"},
		"err":                        {Stderr: "err", ExitStatus: sandbox.ExitStatus{ExitCode: 1}},
		"out\n--- stderr ---\nerr":   {Stdout: "out\n", Stderr: "err"},
		"a\n7":                       {Stdout: "a", Value: "7"},
		"Command timed out after 1s": {ExitStatus: sandbox.ExitStatus{TimedOut: true}, Limit: time.Second},
		"Exit code: 3":               {ExitStatus: sandbox.ExitStatus{ExitCode: 3}},
		"":                           {},
	} {
		if got := r.Text(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// Requests that are wrong reach nothing.
func TestWrong(t *testing.T) {
	t.Parallel()
	r := NewRunner(nil, Options{})
	defer r.Close(t.Context())
	_, err := r.Run(t.Context(), Request{Preset: "cobol"})
	u, ok := errors.AsType[*UnknownPresetError](err)
	if !ok || strings.Join(u.Available, " ") != "node python shell" {
		t.Error(err)
	}
	if _, err := r.Run(t.Context(), Request{Preset: "python", Session: "a/b"}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
	if _, err := r.Run(t.Context(), Request{Preset: "python", Code: strings.Repeat("#", MaxCode+1)}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
	if _, err := r.Run(t.Context(), Request{Preset: "python", Runtime: "microvm"}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}

// Each call has a place of its own, of which nothing is left.
func TestFresh(t *testing.T) {
	t.Parallel()
	r := open(t, Options{})
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		q      Request
		stdout string
		exit   int
		check  func(Result) bool
	}{
		"python":       {q: Request{Preset: "python", Code: "print(6 * 7)"}, stdout: "42\n"},
		"node":         {q: Request{Preset: "node", Code: "console.log(6 * 7)"}, stdout: "42\n"},
		"shell":        {q: Request{Preset: "shell", Code: "pwd; ls -A; echo $HOME; cat; exit 3"}, stdout: "/workspace\n/workspace\n", exit: 3},
		"300 KB":       {q: Request{Preset: "python", Code: strings.Repeat("# comment\n", 30000) + "print(1)"}, stdout: "1\n"},
		"300 KB shell": {q: Request{Preset: "shell", Code: strings.Repeat("# comment\n", 30000) + "echo 1"}, stdout: "1\n"},
		"the folder":   {q: Request{Preset: "python", Code: "import os; print(os.environ['PWD'], os.getcwd())"}, stdout: "/workspace /workspace\n"},
		"nothing":      {q: Request{Preset: "python"}},
		"full folders": {q: Request{
			Preset: "shell",
			Code:   "for d in /tmp /dev/shm; do head -c 2G /dev/zero >$d/f; done 2>/dev/null; head -c 9 /dev/zero | wc -c",
		}, stdout: "9\n"},
		"the host": {q: Request{Preset: "shell", Code: "test ! -e " + canary +
			" && test $(wc -l </etc/passwd) -le 3 && ! ls /home | grep -v sandbox"}},
		"no network": {q: Request{
			Preset: "python",
			Code: "import socket\ntry: socket.create_connection(('127.0.0.1', 1), 1)\nexcept ConnectionRefusedError: print('own loopback')\n" +
				"print([n for _, n in socket.if_nameindex()])",
		}, stdout: "own loopback\n['lo']\n"},
		"a timeout": {
			q: Request{Preset: "shell", Code: "setsid sleep 987.5 & sleep 987.5", Timeout: 300 * time.Millisecond}, exit: -1,
			check: func(r Result) bool {
				return r.TimedOut && exec.CommandContext(context.WithoutCancel(t.Context()), "pgrep", "-f", "sleep 987.5").Run() != nil
			},
		},
		"much output": {q: Request{Preset: "python", Code: "print('é' * 2_000_000)"}, exit: 0, check: func(r Result) bool {
			return r.Truncated && len(r.Stdout) < sandbox.DefaultMaxOutput+200 && !strings.ContainsRune(r.Stdout, '\uFFFD')
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := r.Run(t.Context(), row.q)
			if err != nil {
				t.Fatal(err)
			}
			if row.exit >= 0 && res.ExitCode != row.exit || row.check == nil && res.Stdout != row.stdout || row.check != nil &&
				!row.check(res) || res.Runtime != sandbox.RuntimeJail {
				t.Errorf("%d, %.200q, %.200q, %s", res.ExitCode, res.Stdout, res.Stderr, res.Runtime)
			}
		})
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	r := open(t, Options{IdleTimeout: 2 * time.Second})
	do := func(session, env, code string) Result {
		t.Helper()
		res, err := r.Run(t.Context(), Request{Preset: env, Code: code, Session: session})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := do("a", "python", "x = 1"); !res.Created || res.Lost {
		t.Errorf("%+v", res)
	}
	do("b", "python", "x = 2")
	if a, b := do("a", "python", "print(x)"), do("b", "python", "print(x)"); a.Stdout != "1\n" || b.Stdout != "2\n" || a.Created {
		t.Errorf("%+v, %+v", a, b)
	}
	_, err := r.Run(t.Context(), Request{Preset: "node", Session: "a"})
	if e, ok := errors.AsType[*SessionPresetError](err); !ok || e.Preset != "python" {
		t.Error(err)
	}
	if res := do("a", "python", "import os; print(os.environ['PWD'], os.getcwd())"); res.Stdout != "/workspace /workspace\n" {
		t.Errorf("%+v", res)
	}
	if res := do("a", "python", "import sys; sys.exit(4)"); !res.Ended || res.ExitCode != 4 {
		t.Errorf("%+v", res)
	}
	if res := do("a", "python", "print('x' in globals())"); !res.Created || !res.Lost || res.Stdout != "False\n" {
		t.Errorf("%+v", res)
	}
	if err := r.EndSession(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		all, err := r.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			break // nobody used it
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", all)
		}
	}
}

// runs reports whether a session is open.
func (r *Runner) runs(k key) bool {
	r.mu.Lock()
	s := r.sessions[k]
	r.mu.Unlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in != nil
}

// Clients have sessions of their own, which end with them, also in the middle of a cell.
func TestClients(t *testing.T) {
	t.Parallel()
	r := open(t, Options{})
	do := func(client, code string) Result {
		t.Helper()
		res, err := r.Run(t.Context(), Request{Preset: "python", Code: code, Session: "s", Client: client})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	do("a", "x = 1")
	if b := do("b", "x = 2"); !b.Created {
		t.Errorf("%+v", b)
	}
	busy := make(chan Result, 1)
	go func() {
		res, _ := r.Run(t.Context(), Request{
			Preset: "python", Code: "import time\nfor _ in range(200): time.sleep(.1)", Session: "busy",
			Client: "a",
		})
		busy <- res
	}()
	// also one that is being opened is ended
	for deadline := time.Now().Add(20 * time.Second); len(r.sessionsOf("a")) < 2 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	r.EndClient(t.Context(), "a")
	if <-busy; time.Since(began) > 10*time.Second {
		t.Errorf("the cell went on for %s", time.Since(began))
	}
	// One whose time to end its sessions is over leaves none of their places either.
	over, cancel := context.WithCancel(t.Context())
	go func() {
		res, _ := r.Run(t.Context(), Request{Preset: "shell", Code: "sleep 1", Session: "s", Client: "c"})
		busy <- res
	}()
	for deadline := time.Now().Add(20 * time.Second); !r.runs(key{"c", "s"}) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	r.EndClient(over, "c")
	<-busy
	if s := r.pool.Stats(); s.Busy != 1 { // that of the other client
		t.Errorf("%+v", s)
	}
	if a, b := do("a", "print('x' in globals())"), do("b", "print(x)"); a.Stdout != "False\n" || b.Stdout != "2\n" {
		t.Errorf("%+v, %+v", a, b)
	}
}

// Another program finds a session that is kept.
func TestKept(t *testing.T) {
	t.Parallel()
	noted := t.TempDir()
	first := open(t, Options{PersistSessions: true, PersistedDir: noted})
	if res, err := first.Run(t.Context(), Request{Preset: "shell", Code: "x=5", Session: "Kept.1"}); err != nil || !res.Created || res.Lost {
		t.Fatalf("%+v, %v", res, err)
	}
	broken := Preset{Name: "broken", Interpreter: []string{"/nowhere/python3", "-"}, Driver: sandbox.DriverPython}
	second := NewRunner(first.m, Options{PersistSessions: true, PersistedDir: noted, Presets: func() []Preset { return append(BuiltinPresets(), broken) }})
	if _, err := second.Run(t.Context(), Request{Preset: "broken", Session: "b"}); err == nil {
		t.Error("there is no such interpreter")
	}
	if res, err := second.Run(t.Context(), Request{Preset: "shell", Code: "echo $x", Session: "Kept.1"}); err != nil ||
		res.Stdout != "5\n" || res.Created {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := second.Run(t.Context(), Request{Preset: "python", Session: "Kept.1"}); err == nil {
		t.Error("it is bound to another environment")
	}
	all, err := second.Sessions(t.Context())
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) || len(all) != 1 || all[0].ID != "Kept.1" || all[0].Preset != "shell" {
		t.Errorf("%+v, %v", all, err)
	}
	place, err := second.m.Get(t.Context(), keptName("Kept.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Stop(t.Context()); err != nil { // as after its idle time
		t.Fatal(err)
	}
	if res, err := first.Run(t.Context(), Request{Preset: "shell", Code: "echo $x", Session: "Kept.1"}); err != nil || !res.Created || !res.Lost {
		t.Errorf("%+v, %v", res, err)
	}
	if err := second.EndSession(t.Context(), "Kept.1"); err != nil {
		t.Error(err)
	}
	if err := second.EndSession(t.Context(), "Kept.1"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}

// What an environment has beside the presets' reaches the code, and what is wrong with it is told.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	project, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(project, "file"), []byte("of the project\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(project, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "run")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho read: $(cat); exit 4\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell := Preset{Interpreter: []string{"sh", "-c"}, CodeArgument: true, Driver: ""}
	named := func(name string, change func(*Preset)) Preset {
		p := shell
		p.Name = name
		change(&p)
		return p
	}
	hosts, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir(), AllowHost: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hosts.Close() })
	r := open(t, Options{
		HostManager: hosts, Getenv: func(name string) string { return "value of " + name },
		Presets: func() []Preset {
			return []Preset{
				named("project", func(p *Preset) { p.Project = project }),
				named("nowhere", func(p *Preset) { p.Project = program }),
				named("variables", func(p *Preset) { p.Env, p.Inherit = []string{"A=b"}, []string{"INHERITED"} }),
				named("short", func(p *Preset) { p.Timeout = 300 * time.Millisecond }),
				named("theirs", func(p *Preset) { p.Interpreter, p.Program = nil, program }),
				named("nothing", func(p *Preset) { p.Interpreter = nil }),
			}
		},
	})
	for name, row := range map[string]struct {
		code, stdout string
		exit         int
		wrong        error
	}{
		"project":   {code: "cat /project/file; echo x >/project/file || exit 3", stdout: "of the project\n", exit: 3},
		"variables": {code: "echo $A, $INHERITED", stdout: "b, value of INHERITED\n"},
		"short":     {code: "sleep 60", exit: 143},
		"theirs":    {code: "the code", stdout: "read: the code\n", exit: 4},
		"nowhere":   {wrong: sandbox.ErrInvalidSpec},
		"nothing":   {wrong: sandbox.ErrInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := r.Run(t.Context(), Request{Preset: name, Code: row.code})
			if !errors.Is(err, row.wrong) || row.wrong == nil && err != nil {
				t.Fatal(err)
			}
			if res.Stdout != row.stdout || res.ExitCode != row.exit || res.TimedOut != (name == "short") {
				t.Errorf("%+v", res)
			}
		})
	}
	if _, err := r.Run(t.Context(), Request{Preset: "variables", Session: "s"}); !errors.Is(err, ErrNoSessions) {
		t.Error(err)
	}
}

// Code whose guest does not come to end it is out of time all the same, and nothing of it is left.
func TestStarved(t *testing.T) {
	t.Parallel()
	r := open(t, Options{})
	const program = "sleep 61.25"
	go func() {
		for !halted(program) && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	res, err := r.Run(t.Context(), Request{Preset: "shell", Code: "echo begun; " + program, Timeout: 2 * time.Second})
	if err != nil || !res.TimedOut || res.ExitCode != timedOut || res.Stdout != "begun\n" || res.DurationMS > 60_000 ||
		res.DurationMS < 4_000 {
		t.Errorf("%+v, %v", res, err)
	}
	if parents(program) != nil {
		t.Error("it runs on")
	}
}

// parents are those of a command, up to the first process of all.
func parents(command string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if b, _ := os.ReadFile(file); strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "), " ") != command {
			continue
		}
		for pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))); pid > 1; {
			pids = append(pids, pid)
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
			if len(fields) < 2 {
				break
			}
			pid, _ = strconv.Atoi(fields[1])
		}
		return pids
	}
	return nil
}

// halted halts the guest of a command that runs.
func halted(command string) bool {
	for _, pid := range parents(command) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(b), "guest\x00jail") && !strings.Contains(string(b), "bwrap") {
			return syscall.Kill(pid, syscall.SIGSTOP) == nil
		}
	}
	return false
}

// Code with rules has no network but its proxy, and reaches only the hosts of the rules, in a fresh jail and in a session.
// Docs: docs/run.md
func TestAllow(t *testing.T) {
	t.Parallel()
	at := machineAddress(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Skipf("no server of this machine can be reached: %v", err)
	}
	web := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})}} //nolint:gosec // of a test
	web.Start()
	defer web.Close()
	const ask = `import os, urllib.request, urllib.error
for via in ({"http": os.environ["http_proxy"]}, {}):
    try: print(urllib.request.build_opener(urllib.request.ProxyHandler(via)).open(%q).read().decode())
    except urllib.error.HTTPError as e: print(e.code)
    except OSError as e: print("unreachable")
`
	r := open(t, Options{})
	for _, session := range []string{"", "s"} {
		for url, want := range map[string]string{web.URL: "hello\nunreachable\n", "http://192.0.2.77": "403\nunreachable\n"} {
			q := Request{
				Preset: "python", Session: session, Runtime: sandbox.RuntimeJail, Allow: []string{l.Addr().String()}, Code: fmt.Sprintf(ask, url),
			}
			if got, err := r.Run(t.Context(), q); err != nil || got.Stdout != want {
				t.Errorf("session %q, %s: %q %q, %v", session, url, got.Stdout, got.Stderr, err)
			}
		}
	}
}

// machineAddress returns an address of this machine that is not on its loopback.
func machineAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no network")
	return ""
}

// The caller's project overrides the preset's, and has to be a directory.
func TestProjectOfTheCaller(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := open(t, Options{Project: dir})
	q := Request{Preset: "shell", Runtime: sandbox.RuntimeJail, Code: "ls /project; touch /project/x || exit 7"}
	if got, err := r.Run(t.Context(), q); err != nil || got.Stdout != "f\n" || got.ExitCode != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	r = open(t, Options{Project: filepath.Join(dir, "f")})
	if _, err := r.Run(t.Context(), q); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}
